//! Vectors from a server that speaks OpenAI's embeddings protocol, kept in a cache.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use half::f16;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use ureq::Agent;

use super::Embedder;
use super::cache::Cache;
use crate::error::{Context, Error, Result};

/// How many texts go into one request.
const TEXTS_PER_REQUEST: usize = 64;
/// How often a request is tried before it is given up.
const TRIES: u32 = 6;
/// How long to wait after the first try that failed; twice as long after each further one.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// The longest that a server may ask to be left alone.
const LONGEST_WAIT: Duration = Duration::from_mins(1);
const TIMEOUT: Duration = Duration::from_mins(2);
/// How often whoever waits looks whether the work is to stop.
const LOOK: Duration = Duration::from_millis(100);
const ANSWER_LIMIT: u64 = 256 << 20;

/// Asks a server for the vectors of texts, and remembers them.
///
/// # Determinism
/// That of the server, made firm by the cache: what was answered once is never asked again.
pub struct EndpointEmbedder<'a> {
    agent: Agent,
    url: String,
    model: String,
    key: Option<String>,
    dimension: usize,
    cache: Mutex<Cache>,
    first_wait: Duration,
    stopped: &'a (dyn Fn() -> bool + Sync),
}

#[derive(Serialize)]
struct Request<'a> {
    model: &'a str,
    input: &'a [&'a str],
    encoding_format: &'a str,
}

#[derive(Deserialize)]
struct Answer {
    data: Vec<Embedding>,
}

#[derive(Deserialize)]
struct Embedding {
    index: usize,
    embedding: Vec<f32>,
}

/// Why a try failed, and whether another may do better.
enum Failure {
    Final(Error),
    Passing { error: Error, wait: Option<Duration> },
}

/// What a server said.
struct Reply {
    status: u16,
    /// How long it asks to be left alone.
    wait: Option<Duration>,
    text: String,
}

impl<'a> EndpointEmbedder<'a> {
    /// An embedder that asks `{url}/embeddings` for vectors of `model`, `dimension` numbers long.
    ///
    /// `key` is sent as a bearer token. `cache` is a file, made where it is not there, that holds
    /// what was answered; one file serves one model.
    ///
    /// # Errors
    /// `InvalidArgument` when the URL is none; `PlanMismatch` when the cache is of another model or
    /// dimension; `Io`, `NotOurs` or `Corrupt` when it cannot be used.
    pub fn new(
        url: &str,
        model: &str,
        key: Option<String>,
        dimension: usize,
        cache: &Path,
    ) -> Result<Self> {
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err(Error::invalid(format!(
                "expected the URL of an embedding server, such as https://host/v1, found {url:?}"
            )));
        }
        let config = Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            .build();
        Ok(Self {
            agent: config.new_agent(),
            url: format!("{}/embeddings", url.trim_end_matches('/')),
            model: model.to_owned(),
            key,
            dimension,
            cache: Mutex::new(Cache::open(cache, model, dimension)?),
            first_wait: FIRST_WAIT,
            stopped: &|| false,
        })
    }

    /// Ends its waiting with `Interrupted`, soon after `stopped` says true.
    #[must_use]
    pub fn stop_when(mut self, stopped: &'a (dyn Fn() -> bool + Sync)) -> Self {
        self.stopped = stopped;
        self
    }

    fn check(&self) -> Result<()> {
        match (self.stopped)() {
            true => Err(Error::interrupted(
                "interrupted; the cache keeps the vectors received so \
                                            far",
            )),
            false => Ok(()),
        }
    }

    fn sleep(&self, mut wait: Duration) -> Result<()> {
        while !wait.is_zero() {
            self.check()?;
            let now = wait.min(LOOK);
            std::thread::sleep(now);
            wait -= now;
        }
        Ok(())
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, Cache> {
        // What the cache holds is whole after any panic: entries are checked when they are read.
        self.cache.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The vectors of `texts` from the server.
    fn ask(&self, texts: &[&str]) -> Result<Vec<Vec<f16>>> {
        let mut wait = self.first_wait;
        for attempt in 1.. {
            match self.try_once(texts) {
                Ok(vectors) => return Ok(vectors),
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Passing { error, .. }) if attempt == TRIES => {
                    return Err(error.context(format!("{} after {TRIES} tries", self.url)));
                }
                Err(Failure::Passing { wait: asked, .. }) => {
                    self.sleep(asked.unwrap_or(wait).min(LONGEST_WAIT))?;
                    wait *= 2;
                }
            }
        }
        unreachable!("the last try returns")
    }

    fn try_once(&self, texts: &[&str]) -> Result<Vec<Vec<f16>>, Failure> {
        let Reply { status, wait, text } = match self.request(texts).map_err(Failure::Final)? {
            Ok(reply) => reply,
            Err(what) => {
                let error = Error::new(crate::ErrorKind::Io, what.to_string());
                return Err(Failure::Passing { error, wait: None });
            }
        };
        if status != 200 {
            let start: String = text.chars().take(300).collect();
            let error = Error::new(
                crate::ErrorKind::Io,
                format!("{} answered with status {status}: {}", self.url, start.trim()),
            );
            return Err(match status {
                408 | 429 | 500..=599 => Failure::Passing { error, wait },
                _ => Failure::Final(error),
            });
        }
        self.read(&text, texts.len()).map_err(|e| Failure::Final(e.context(&self.url)))
    }

    /// Sends a request and waits for the reply, or for the work to stop.
    ///
    /// A thread of its own does the reading, which cannot be woken; when the work stops it is left
    /// to its timeout.
    fn request(&self, texts: &[&str]) -> Result<Result<Reply, ureq::Error>> {
        let body = Request { model: &self.model, input: texts, encoding_format: "float" };
        let body = serde_json::to_string(&body)
            .map_err(|e| Error::invalid(format!("writing JSON: {e}")))?;
        let mut request = self.agent.post(&self.url).content_type("application/json");
        if let Some(key) = &self.key {
            request = request.header("Authorization", &format!("Bearer {key}"));
        }
        let (sender, replied) = channel();
        let ask = move || {
            // Nobody waits for it any more when the work has stopped.
            let _ = sender.send(request.send(body).and_then(read_reply));
        };
        std::thread::Builder::new()
            .spawn(ask)
            .map_err(|e| Error::invalid(format!("starting a thread: {e}")))?;
        loop {
            self.check()?;
            match replied.recv_timeout(LOOK) {
                Ok(reply) => return Ok(reply),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::new(
                        crate::ErrorKind::Io,
                        "internal error: the thread of the \
                                                                 request panicked",
                    ));
                }
            }
        }
    }

    /// The vectors in an answer, in the order of the texts.
    fn read(&self, text: &str, count: usize) -> Result<Vec<Vec<f16>>> {
        let answer: Answer = serde_json::from_str(text).map_err(|e| {
            Error::data(format!("expected a list of embeddings as the answer: {e}"))
        })?;
        let mut vectors = vec![Vec::new(); count];
        for Embedding { index, embedding } in answer.data {
            if embedding.len() != self.dimension {
                return Err(Error::invalid(format!(
                    "expected vectors of {} numbers, found {} from model {:?}; set the dimension \
                     to {}",
                    self.dimension,
                    embedding.len(),
                    self.model,
                    embedding.len()
                )));
            }
            let vector: Vec<f16> = embedding.into_iter().map(f16::from_f32).collect();
            if !vector.iter().all(|x| x.is_finite()) {
                return Err(Error::data(
                    "expected numbers that a 16-bit float can hold, found \
                                        others",
                ));
            }
            match vectors.get_mut(index) {
                Some(place) if place.is_empty() => *place = vector,
                _ => {
                    return Err(Error::data(format!(
                        "expected one vector for each of {count} \
                                                     texts, found index {index} twice or out of \
                                                     range"
                    )));
                }
            }
        }
        match vectors.iter().position(Vec::is_empty) {
            None => Ok(vectors),
            Some(missing) => {
                Err(Error::data(format!("the answer has no vector for text {missing} of {count}")))
            }
        }
    }
}

fn read_reply(mut response: ureq::http::Response<ureq::Body>) -> Result<Reply, ureq::Error> {
    let asked = response.headers().get("retry-after").and_then(|v| v.to_str().ok());
    let wait = asked.and_then(|v| v.parse().ok()).map(Duration::from_secs);
    let text = response.body_mut().with_config().limit(ANSWER_LIMIT).read_to_string()?;
    Ok(Reply { status: response.status().as_u16(), wait, text })
}

impl Embedder for EndpointEmbedder<'_> {
    fn name(&self) -> String {
        format!("model {}", self.model)
    }

    fn dimension(&self) -> usize {
        self.dimension
    }

    fn embed(&self, texts: &[&str], vectors: &mut [f16]) -> Result<()> {
        let mut missing = Vec::new();
        for (place, vector) in vectors.chunks_exact_mut(self.dimension).enumerate() {
            // Servers refuse a text without words; there is nothing to know of it either.
            if texts[place].trim().is_empty() {
                vector.fill(f16::ZERO);
            } else if !self.cache().get(texts[place], vector)? {
                missing.push(place);
            }
        }
        let mut seen = HashSet::new();
        let unknown: Vec<&str> =
            missing.iter().map(|&place| texts[place]).filter(|&text| seen.insert(text)).collect();
        unknown.par_chunks(TEXTS_PER_REQUEST).try_for_each(|asked| {
            let answered = self.ask(asked).context(|| "embedding texts")?;
            let mut cache = self.cache();
            asked.iter().zip(&answered).try_for_each(|(text, vector)| cache.put(text, vector))
        })?;
        for place in missing {
            let vector = &mut vectors[place * self.dimension..(place + 1) * self.dimension];
            if !self.cache().get(texts[place], vector)? {
                return Err(Error::corrupt("internal error: the embedding cache lost a vector"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
