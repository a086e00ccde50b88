//! Requests vectors from a server with OpenAI's embeddings protocol, and caches them.

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

/// The number of texts in one request.
const TEXTS_PER_REQUEST: usize = 64;
/// The most attempts of a request.
const ATTEMPTS: u32 = 6;
/// The wait after the first failed attempt; it doubles after each further one.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// The longest wait that a server can request.
const LONGEST_WAIT: Duration = Duration::from_mins(1);
const TIMEOUT: Duration = Duration::from_mins(2);
/// The interval at which waiting threads check for an interrupt.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The most bytes of an answer.
const ANSWER_LIMIT: u64 = 256 << 20;

/// An embedder that requests vectors from a server, and caches them.
///
/// # Determinism
/// That of the server; but the cache keeps each vector, and a vector is never requested twice.
pub struct EndpointEmbedder<'a> {
    agent: Agent,
    url: String,
    model: String,
    key: Option<String>,
    dimension: usize,
    cache: Mutex<Cache>,
    first_wait: Duration,
    is_stopped: &'a (dyn Fn() -> bool + Sync),
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

/// The error of an attempt, and whether to try again.
enum Failure {
    Final(Error),
    Temporary { error: Error, wait: Option<Duration> },
}

/// The reply of a server.
struct Reply {
    status: u16,
    /// The wait before the next attempt that the server requests.
    wait: Option<Duration>,
    text: String,
}

impl<'a> EndpointEmbedder<'a> {
    /// Returns an embedder that requests vectors of `model` with `dimension` numbers from
    /// `{url}/embeddings`.
    ///
    /// `key` is sent as a bearer token. `cache` is the file of received vectors; it is created if
    /// it does not exist. One file serves one model.
    ///
    /// # Errors
    /// `InvalidArgument` when `url` is not a URL; `PlanMismatch` when the cache has vectors of
    /// another model or dimension; `Io`, `NotOurs` or `Corrupt` when the cache cannot be used.
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
            is_stopped: &|| false,
        })
    }

    /// Makes `embed` end with `Interrupted` soon after `is_stopped` returns true.
    #[must_use]
    pub fn stop_when(mut self, is_stopped: &'a (dyn Fn() -> bool + Sync)) -> Self {
        self.is_stopped = is_stopped;
        self
    }

    fn check(&self) -> Result<()> {
        match (self.is_stopped)() {
            true => {
                Err(Error::interrupted("interrupted; the cache keeps the vectors received so far"))
            }
            false => Ok(()),
        }
    }

    fn sleep(&self, mut wait: Duration) -> Result<()> {
        while !wait.is_zero() {
            self.check()?;
            let now = wait.min(POLL_INTERVAL);
            std::thread::sleep(now);
            wait -= now;
        }
        Ok(())
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, Cache> {
        // The cache is valid after a panic, because entries are checked when they are read.
        self.cache.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Requests the vectors of `texts`, in several attempts.
    fn fetch(&self, texts: &[&str]) -> Result<Vec<Vec<f16>>> {
        let mut wait = self.first_wait;
        for attempt in 1.. {
            match self.try_once(texts) {
                Ok(vectors) => return Ok(vectors),
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Temporary { error, .. }) if attempt == ATTEMPTS => {
                    return Err(error.context(format!("{} after {ATTEMPTS} tries", self.url)));
                }
                Err(Failure::Temporary { wait: requested, .. }) => {
                    self.sleep(requested.unwrap_or(wait).min(LONGEST_WAIT))?;
                    wait *= 2;
                }
            }
        }
        unreachable!("the last attempt returns")
    }

    fn try_once(&self, texts: &[&str]) -> Result<Vec<Vec<f16>>, Failure> {
        let Reply { status, wait, text } = match self.request(texts).map_err(Failure::Final)? {
            Ok(reply) => reply,
            Err(error) => {
                let error = Error::new(crate::ErrorKind::Io, error.to_string());
                return Err(Failure::Temporary { error, wait: None });
            }
        };
        if status != 200 {
            let start: String = text.chars().take(300).collect();
            let error = Error::new(
                crate::ErrorKind::Io,
                format!("{} answered with status {status}: {}", self.url, start.trim()),
            );
            return Err(match status {
                408 | 429 | 500..=599 => Failure::Temporary { error, wait },
                _ => Failure::Final(error),
            });
        }
        self.read(&text, texts.len()).map_err(|e| Failure::Final(e.context(&self.url)))
    }

    /// Sends a request, and waits for the reply or for an interrupt.
    ///
    /// Another thread reads the reply, because the read cannot be interrupted; after an interrupt
    /// that thread ends by its timeout.
    fn request(&self, texts: &[&str]) -> Result<Result<Reply, ureq::Error>> {
        let body = Request { model: &self.model, input: texts, encoding_format: "float" };
        let body = serde_json::to_string(&body)
            .map_err(|e| Error::invalid(format!("writing JSON: {e}")))?;
        let mut request = self.agent.post(&self.url).content_type("application/json");
        if let Some(key) = &self.key {
            request = request.header("Authorization", &format!("Bearer {key}"));
        }
        let (sender, replies) = channel();
        let send = move || {
            // Sending fails after an interrupt; then the reply does not matter.
            let _ = sender.send(request.send(body).and_then(read_reply));
        };
        std::thread::Builder::new()
            .spawn(send)
            .map_err(|e| Error::invalid(format!("starting a thread: {e}")))?;
        loop {
            self.check()?;
            match replies.recv_timeout(POLL_INTERVAL) {
                Ok(reply) => return Ok(reply),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::new(
                        crate::ErrorKind::Io,
                        "internal error: the thread of the request panicked",
                    ));
                }
            }
        }
    }

    /// Returns the vectors of an answer, in the order of the texts.
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
                    "expected numbers in the range of 16-bit floats, found a larger one",
                ));
            }
            match vectors.get_mut(index) {
                Some(place) if place.is_empty() => *place = vector,
                _ => {
                    return Err(Error::data(format!(
                        "expected one vector for each of {count} texts, found index {index} twice \
                         or out of range"
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
    let requested = response.headers().get("retry-after").and_then(|v| v.to_str().ok());
    let wait = requested.and_then(|v| v.parse().ok()).map(Duration::from_secs);
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
            // Servers reject a blank text; its vector is zero.
            if texts[place].trim().is_empty() {
                vector.fill(f16::ZERO);
            } else if !self.cache().get(texts[place], vector)? {
                missing.push(place);
            }
        }
        let mut known = HashSet::new();
        let requested: Vec<&str> =
            missing.iter().map(|&place| texts[place]).filter(|&text| known.insert(text)).collect();
        requested.par_chunks(TEXTS_PER_REQUEST).try_for_each(|texts| {
            let received = self.fetch(texts).context(|| "embedding texts")?;
            let mut cache = self.cache();
            texts.iter().zip(&received).try_for_each(|(text, vector)| cache.put(text, vector))
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
