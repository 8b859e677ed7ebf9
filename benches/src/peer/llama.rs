//! `llama-server` of llama.cpp: its `/completion`, with token ids.

use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use skillgraft_kv::TokenId;

use crate::error::Error;
use crate::stats::median;

/// What it is called in reports.
pub(super) const NAME: &str = "llama-server";
/// The longest that one answer may take.
const TIME_LIMIT: Duration = Duration::from_secs(600);
/// Requests that do nothing, to see what HTTP costs.
const N_HTTP: usize = 15;

/// How to continue some tokens. Always greedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ask {
    /// Tokens to generate, the end of the turn ignored.
    pub(crate) n_predict: usize,
    /// Whether it may use what it still has of the tokens before.
    pub(crate) cached: bool,
    /// Shortest chunk to be moved by shifting its keys (`--cache-reuse`); 0 for
    /// none.
    pub(crate) reuse: usize,
}

impl Ask {
    /// The first token, from nothing.
    pub(crate) const COLD: Ask = Ask { n_predict: 1, cached: false, reuse: 0 };
    /// The first token, with what is cached of the prefix.
    pub(crate) const CACHED: Ask = Ask { cached: true, ..Ask::COLD };
}

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    /// Wall time over HTTP from sending the request to having the first token.
    pub(crate) ttft_ms: f64,
    /// The generated tokens.
    pub(crate) tokens: Vec<u32>,
    /// Tokens that it had cached.
    pub(crate) cached: usize,
    /// Tokens that it prefilled.
    pub(crate) prefilled: usize,
    /// What it says the prefill took.
    pub(crate) prompt_ms: f64,
    /// What it says it decoded in a second, the first token not counted.
    pub(crate) decode_tok_s: Option<f64>,
}

/// What a server says of itself.
pub(super) struct Props {
    pub(super) model: Option<String>,
    pub(super) version: Option<String>,
}

#[derive(Debug)]
pub(super) struct LlamaServer {
    agent: ureq::Agent,
    url: String,
}

impl LlamaServer {
    pub(super) fn new(url: String) -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(TIME_LIMIT))
            // A proxy of the environment has no business on the way to a peer.
            .proxy(None)
            .build();
        LlamaServer { agent: config.into(), url }
    }

    pub(super) fn fault(&self, reason: &str) -> Error {
        Error::Peer { name: NAME.to_owned(), url: self.url.clone(), reason: reason.to_owned() }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.agent.get(format!("{}/health", self.url)).call().is_ok()
    }

    pub(super) fn props(&self) -> Result<Props, Error> {
        let text = self
            .agent
            .get(format!("{}/props", self.url))
            .call()
            .and_then(|mut response| response.body_mut().read_to_string())
            .map_err(|error| self.fault(&error.to_string()))?;
        let props: Value =
            serde_json::from_str(&text).map_err(|error| self.fault(&error.to_string()))?;
        let text_of = |key: &str| props[key].as_str().map(str::to_owned);
        let model = text_of("model_path")
            .map(|path| path.rsplit(['/', '\\']).next().unwrap_or_default().to_owned());
        Ok(Props { model, version: text_of("build_info") })
    }

    /// Median time of a request that does nothing.
    pub(super) fn http_ms(&self) -> Result<f64, Error> {
        let mut times = Vec::new();
        for _ in 0..N_HTTP {
            let started = Instant::now();
            if !self.is_ready() {
                return Err(self.fault("it has stopped answering"));
            }
            times.push(started.elapsed().as_secs_f64() * 1e3);
        }
        Ok(median(&times))
    }

    pub(super) fn ask(&self, tokens: &[TokenId], ask: Ask) -> Result<Answer, Error> {
        let prompt: Vec<u32> = tokens.iter().map(|token| token.0).collect();
        let body = json!({
            "prompt": prompt,
            "n_predict": ask.n_predict,
            "temperature": 0,
            "top_k": 1,
            "samplers": ["top_k"],
            "ignore_eos": true,
            "cache_prompt": ask.cached,
            "n_cache_reuse": ask.reuse,
            "return_tokens": true,
            "stream": true,
        })
        .to_string();
        let started = Instant::now();
        let response = self
            .agent
            .post(format!("{}/completion", self.url))
            .header("content-type", "application/json")
            .send(body)
            .map_err(|error| self.fault(&error.to_string()))?;
        let events = BufReader::new(response.into_body().into_reader());
        self.read(events, started)
    }

    /// Reads a stream of events to its end.
    fn read(&self, events: impl BufRead, started: Instant) -> Result<Answer, Error> {
        let mut tokens = Vec::new();
        let mut first_ms = None;
        for line in events.lines() {
            let line = line.map_err(|error| self.fault(&error.to_string()))?;
            let Some(data) = line.strip_prefix("data: ") else { continue };
            let event: Value =
                serde_json::from_str(data).map_err(|error| self.fault(&error.to_string()))?;
            if !event["error"].is_null() {
                return Err(self.fault(&event["error"].to_string()));
            }
            let fresh = event["tokens"].as_array().into_iter().flatten();
            tokens.extend(fresh.filter_map(Value::as_u64).map(|token| token as u32));
            if !tokens.is_empty() {
                first_ms.get_or_insert_with(|| started.elapsed().as_secs_f64() * 1e3);
            }
            if event["stop"] == true {
                let ttft_ms = first_ms.ok_or_else(|| self.fault("it generated no token"))?;
                return self.answer(ttft_ms, tokens, &event["timings"]);
            }
        }
        Err(self.fault("its answer was cut short"))
    }

    fn answer(&self, ttft_ms: f64, tokens: Vec<u32>, timings: &Value) -> Result<Answer, Error> {
        let number = |key: &str| timings[key].as_f64();
        let needed =
            |key: &str| number(key).ok_or_else(|| self.fault(&format!("`{key}` is missing")));
        Ok(Answer {
            ttft_ms,
            tokens,
            cached: number("cache_n").unwrap_or(0.0) as usize,
            prefilled: needed("prompt_n")? as usize,
            prompt_ms: needed("prompt_ms")?,
            decode_tok_s: number("predicted_per_second"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(events: &str) -> Result<Answer, Error> {
        LlamaServer::new("http://127.0.0.1:1".to_owned()).read(events.as_bytes(), Instant::now())
    }

    #[test]
    fn a_stream_gives_tokens_and_counts() {
        let answer = read(
            "data: {\"tokens\":[5],\"stop\":false}\n\ndata: {\"tokens\":[6],\"stop\":false}\n\n\
             data: {\"tokens\":[],\"stop\":true,\"timings\":{\"cache_n\":7,\"prompt_n\":2,\
             \"prompt_ms\":4.5,\"predicted_per_second\":50.0}}\n\n",
        )
        .expect("it is whole");
        assert_eq!((answer.tokens, answer.cached, answer.prefilled), (vec![5, 6], 7, 2));
        assert_eq!(answer.decode_tok_s, Some(50.0));
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        for (events, reason) in [
            ("", "cut short"),
            ("data: {\"tokens\":[5],\"stop\":false}\n", "cut short"),
            ("data: {\"tokens\":[],\"stop\":true,\"timings\":{}}\n", "generated no token"),
            ("data: {\"tokens\":[5],\"stop\":true,\"timings\":{}}\n", "`prompt_n` is missing"),
            ("data: {\"error\":{\"message\":\"full\"}}\n", "full"),
        ] {
            let error = read(events).expect_err(events).to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
