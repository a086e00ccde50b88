use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;
use crate::error::ErrorKind;

/// A server on loopback; `answer` returns the status and body for a request's number and texts.
struct Server {
    url: String,
    request_count: Arc<AtomicUsize>,
}

type Reply = (u16, String);

fn serve(answer: impl Fn(usize, &[String]) -> Reply + Send + 'static) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let request_count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&request_count);
    // Ends with the test's process; each connection serves one request.
    std::thread::spawn(move || {
        for stream in listener.incoming().take(100) {
            let mut stream = stream.unwrap();
            let texts = read_request(&mut stream);
            let (status, body) = answer(counter.fetch_add(1, Ordering::SeqCst), &texts);
            let head = format!(
                "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            stream.write_all((head + &body).as_bytes()).unwrap();
        }
    });
    Server { url, request_count }
}

fn read_request(stream: &mut TcpStream) -> Vec<String> {
    let mut reader = BufReader::new(stream);
    let (mut length, mut line) = (0, String::new());
    loop {
        line.clear();
        reader.read_line(&mut line).unwrap();
        if line == "\r\n" {
            break;
        }
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if let Some(value) = lower.strip_prefix("authorization:") {
            assert_eq!(value.trim(), "bearer secret");
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["model"], "m");
    serde_json::from_value(body["input"].clone()).unwrap()
}

/// The vector that these servers return: the text's length and its first byte.
fn vector_of(text: &str) -> [f32; 2] {
    [text.len() as f32, f32::from(text.as_bytes()[0])]
}

fn right_answer(texts: &[String]) -> Reply {
    // In reverse, because the index counts and not the order.
    let data: Vec<_> = (texts.iter().enumerate().rev())
        .map(|(i, text)| serde_json::json!({"index": i, "embedding": vector_of(text)}))
        .collect();
    (200, serde_json::json!({ "data": data }).to_string())
}

fn embedder(server: &Server, cache: &Path) -> Result<EndpointEmbedder<'static>> {
    let mut embedder = EndpointEmbedder::new(&server.url, "m", Some("secret".into()), 2, cache)?;
    embedder.first_wait = Duration::from_millis(1);
    Ok(embedder)
}

fn embed(embedder: &EndpointEmbedder<'_>, texts: &[&str]) -> Result<Vec<f32>> {
    let mut vectors = vec![f16::ONE; texts.len() * 2];
    embedder.embed(texts, &mut vectors)?;
    Ok(vectors.into_iter().map(f16::to_f32).collect())
}

fn expected(texts: &[&str]) -> Vec<f32> {
    texts.iter().flat_map(|text| vector_of(text)).collect()
}

#[test]
fn each_text_is_requested_once_and_cached() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let server = serve(|_, texts| right_answer(texts));
    let texts: Vec<String> = (0..200).map(|i| format!("{i} text")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let first = embedder(&server, &cache).unwrap();
    assert_eq!(embed(&first, &texts).unwrap(), expected(&texts));
    assert_eq!(server.request_count.load(Ordering::SeqCst), 4, "200 texts at 64 a request");
    drop(first);
    let second = embedder(&server, &cache).unwrap();
    assert_eq!(embed(&second, &texts).unwrap(), expected(&texts));
    assert_eq!(embed(&second, &["", "  "]).unwrap(), [0.0; 4]);
    assert_eq!(server.request_count.load(Ordering::SeqCst), 4);
}

#[test]
fn a_text_twice_in_a_call_is_requested_once() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(|_, texts| {
        assert_eq!(texts, ["a", "b"]);
        right_answer(texts)
    });
    let embedder = embedder(&server, &folder.path().join("cache")).unwrap();
    let texts = ["a", "b", "a", "a"];
    assert_eq!(embed(&embedder, &texts).unwrap(), expected(&texts));
}

/// Embeds until it is interrupted, and asserts that it ends soon.
fn assert_stops(url: &str, cache: &Path) {
    let (stop, (sender, ended)) = (AtomicBool::new(false), channel());
    std::thread::scope(|scope| {
        let stop = &stop;
        scope.spawn(move || {
            let is_stopped = || stop.load(Ordering::Relaxed);
            let embedder = EndpointEmbedder::new(url, "m", None, 2, cache).unwrap();
            sender.send(embed(&embedder.stop_when(&is_stopped), &["x"])).unwrap();
        });
        std::thread::sleep(Duration::from_millis(300));
        stop.store(true, Ordering::Relaxed);
        // More than it takes, since a test machine may be busy.
        let error = ended
            .recv_timeout(4 * POLL_INTERVAL)
            .expect("the interrupt must end the call")
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Interrupted);
    });
}

#[test]
fn an_interrupt_ends_the_wait_for_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let busy = serve(|_, _| (503, "busy".into()));
    assert_stops(&busy.url, &cache);
    // Accepts the connection, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    assert_stops(&format!("http://{}", silent.local_addr().unwrap()), &cache);
    assert!(!cache.exists(), "an empty cache is left");
}

#[test]
fn a_new_cache_without_vectors_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let server = serve(|request, texts| match request {
        0 => (401, "who are you".into()),
        _ => right_answer(texts),
    });
    embed(&embedder(&server, &cache).unwrap(), &["x"]).unwrap_err();
    assert!(!cache.exists());
    embed(&embedder(&server, &cache).unwrap(), &["x"]).unwrap();
    assert!(cache.exists());
    drop(embedder(&server, &cache).unwrap());
    assert!(cache.exists());
}

#[test]
fn a_cache_is_locked_while_it_is_open() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let open = || EndpointEmbedder::new("http://h", "m", None, 2, &cache);
    let first = open().unwrap();
    let error = open().err().unwrap().to_string();
    assert!(error.contains("; wait until it ends, or name another file"), "{error}");
    drop(first);
    open().unwrap();
}

#[test]
fn a_truncated_or_damaged_cache_keeps_its_valid_entries() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let server = serve(|_, texts| {
        assert!(texts.len() == 3 || texts == ["b", "c"], "{texts:?}");
        right_answer(texts)
    });
    let texts = ["a", "b", "c"];
    embed(&embedder(&server, &cache).unwrap(), &texts).unwrap();
    let mut bytes = std::fs::read(&cache).unwrap();
    let entry = (bytes.len() - 64) / 3;
    bytes[64 + entry + 33] ^= 1;
    bytes.truncate(bytes.len() - 5);
    std::fs::write(&cache, &bytes).unwrap();
    let again = embedder(&server, &cache).unwrap();
    assert_eq!(embed(&again, &texts).unwrap(), expected(&texts));
    assert_eq!(server.request_count.load(Ordering::SeqCst), 2);
}

#[test]
fn a_cache_of_another_model_dimension_or_type_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let open = |model, dimension| {
        let opened = EndpointEmbedder::new("http://h", model, None, dimension, &cache);
        opened.err().map(|e| (e.kind(), e.to_string()))
    };
    let server = serve(|_, texts| right_answer(texts));
    embed(&embedder(&server, &cache).unwrap(), &["x"]).unwrap();
    assert_eq!(open("m", 2), None);
    let path = cache.display();
    let (kind, message) = open("m", 3).unwrap();
    assert_eq!(kind, ErrorKind::PlanMismatch);
    assert_eq!(
        message,
        format!(
            "expected vectors of 3 numbers in the embedding cache {path}, found 2; name another \
             file"
        )
    );
    let (kind, message) = open("other", 2).unwrap();
    assert_eq!(kind, ErrorKind::PlanMismatch);
    assert!(message.contains("another model than \"other\""), "{message}");
    std::fs::write(&cache, "something else entirely, which is longer than any header would be")
        .unwrap();
    assert_eq!(open("m", 2).unwrap().0, ErrorKind::NotOurs);
}

#[test]
fn temporary_errors_are_retried() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(|request, texts| match request {
        0 => (429, "slow down".into()),
        1 => (500, String::new()),
        _ => right_answer(texts),
    });
    let embedder = embedder(&server, &folder.path().join("cache")).unwrap();
    assert_eq!(embed(&embedder, &["x"]).unwrap(), expected(&["x"]));
    assert_eq!(server.request_count.load(Ordering::SeqCst), 3);
}

#[test]
fn a_persistent_error_is_reported_with_the_reply() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(|_, _| (503, "out of order".into()));
    let broken = embedder(&server, &folder.path().join("cache")).unwrap();
    let error = embed(&broken, &["x"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    let url = format!("{}/embeddings", server.url);
    assert_eq!(
        error.to_string(),
        format!(
            "embedding texts: {url} after 6 tries: {url} answered with status 503: out of order"
        )
    );
    assert_eq!(server.request_count.load(Ordering::SeqCst), 6);
}

#[test]
fn permanent_errors_are_not_retried() {
    let cases: [(Reply, &str); 5] = [
        ((401, "who are you".into()), "answered with status 401: who are you"),
        ((200, "[]".into()), "expected a list of embeddings as the answer"),
        (
            (200, r#"{"data":[{"index":0,"embedding":[1,2,3]}]}"#.into()),
            "expected vectors of 2 numbers, found 3 from model \"m\"; set the dimension to 3",
        ),
        (
            (200, r#"{"data":[{"index":7,"embedding":[1,2]}]}"#.into()),
            "expected one vector for each of 1 texts, found index 7",
        ),
        ((200, r#"{"data":[]}"#.into()), "the answer has no vector for text 0 of 1"),
    ];
    for (reply, message) in cases {
        let folder = tempfile::tempdir().unwrap();
        let server = serve(move |_, _| reply.clone());
        let embedder = embedder(&server, &folder.path().join("cache")).unwrap();
        let error = embed(&embedder, &["x"]).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
        assert_eq!(server.request_count.load(Ordering::SeqCst), 1);
    }
    let (url, cache) = ("ftp://x", Path::new("unused"));
    let error = EndpointEmbedder::new(url, "m", None, 2, cache).err().unwrap().to_string();
    assert_eq!(
        error,
        "expected the URL of an embedding server, such as https://host/v1, found \"ftp://x\""
    );
}
