//! `fastvae serve`: a model over HTTP.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use fastvae::recommend::SearchOptions;
use fastvae_server::{ApiKey, App, Limits, Listen, Options, Vectors};

use crate::failure::{self, usage};
use crate::output::print_line;

/// Where the key may be, beside a file.
const KEY_VARIABLE: &str = "FASTVAE_API_KEY";

/// Serve a model over HTTP, with a page to try it on
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fastvae serve model.fastvae                         then open http://127.0.0.1:8080
  fastvae serve model.fastvae --host 0.0.0.0 --port 80 --api-key-file key.txt
  fastvae serve model.fastvae --watch                 loads the file again when it changes
  curl 127.0.0.1:8080/v1/recommend -H 'content-type: application/json' -d '{\"history\": [17, 42]}'

SIGHUP and POST /v1/reload load the file again; where that fails the old model stays. Replace the file by renaming \
another over it, as `fastvae train` does: a file that is written into while it is served changes under the model.
The routes are described at /docs. The key is read from --api-key-file or from FASTVAE_API_KEY.")]
pub struct Serve {
    /// The model
    model: PathBuf,

    /// Address to listen on; 0.0.0.0 for all of this machine's
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: IpAddr,

    /// Port to listen on; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    port: u16,

    /// File with the key that requests must carry
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,

    /// Load the model again when its file changes
    #[arg(long)]
    watch: bool,

    /// Threads that compute [default: one per core]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    threads: usize,

    /// Share of the exact best items that approximate lists should hold
    #[arg(long, value_name = "SHARE", default_value_t = 0.95)]
    recall: f64,

    /// Codewords of an index built for approximate lists, 1 to 256; more for larger catalogues [default: the model's]
    #[arg(long, value_name = "K")]
    search_codewords: Option<usize>,

    /// What exact lists are found with: int8 reads a copy a quarter as large, and scores its candidates again in full
    #[arg(long, value_name = "KIND", value_enum, default_value_t = VectorKind::F32)]
    vectors: VectorKind,

    /// Items of a list, at most
    #[arg(long, value_name = "N", default_value_t = Limits::default().n)]
    max_n: usize,

    /// Items of a history, at most
    #[arg(long, value_name = "N", default_value_t = Limits::default().history)]
    max_history: usize,

    /// Requests of a batch, at most
    #[arg(long, value_name = "N", default_value_t = Limits::default().batch)]
    max_batch: usize,

    /// Bytes of a request's body, at most
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().body_bytes)]
    max_body: usize,

    /// Connections open at one time, at most, if the system allows as many files; more are closed at once
    #[arg(long, value_name = "N", default_value_t = Limits::default().connections)]
    max_connections: usize,

    /// Requests that compute or wait, at most; more are answered with 429
    #[arg(long, value_name = "N", default_value_t = Limits::default().in_flight)]
    max_in_flight: usize,

    /// Seconds to receive a request, and again to compute its answer
    #[arg(long, value_name = "SECONDS", default_value_t = Limits::default().time.as_secs_f64())]
    timeout: f64,
}

/// Kinds of item vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum VectorKind {
    F32,
    Int8,
}

impl From<VectorKind> for Vectors {
    fn from(kind: VectorKind) -> Self {
        match kind {
            VectorKind::F32 => Self::F32,
            VectorKind::Int8 => Self::Int8,
        }
    }
}

impl Serve {
    /// Serves until somebody stops it.
    pub fn run(self) -> Result<()> {
        let time = Duration::try_from_secs_f64(self.timeout).ok().filter(|time| !time.is_zero()).ok_or_else(
            || usage(format!("--timeout is {}; give a positive number of seconds", self.timeout)),
        )?;
        if !(0.0..1.0).contains(&self.recall) {
            return Err(usage(format!("--recall is {}; give a share from 0 to below 1", self.recall)));
        }
        if self.max_in_flight == 0 {
            return Err(usage("--max-in-flight is 0; give at least 1"));
        }
        if self.max_connections == 0 {
            return Err(usage("--max-connections is 0; give at least 1"));
        }
        let limits = Limits {
            n: self.max_n,
            history: self.max_history,
            batch: self.max_batch,
            body_bytes: self.max_body,
            in_flight: self.max_in_flight,
            connections: self.max_connections,
            time,
            ..Limits::default()
        };
        let api_key = self.api_key()?;
        if api_key.is_none() && !self.host.is_loopback() {
            tracing::warn!("anybody who reaches {} may ask: set a key with --api-key-file", self.host);
        }
        let mut search = SearchOptions::default();
        search.recall = self.recall;
        search.codewords = self.search_codewords;
        let options =
            Options { limits, api_key, threads: self.threads, search, vectors: self.vectors.into() };
        serve(&self.model, options, SocketAddr::new(self.host, self.port), self.watch)
    }

    fn api_key(&self) -> Result<Option<ApiKey>> {
        if let Some(path) = &self.api_key_file {
            let text = std::fs::read_to_string(path).map_err(|source| failure::io(path, source))?;
            return match ApiKey::new(&text) {
                Some(key) => Ok(Some(key)),
                None => Err(usage(format!("{} is empty; put the key into it", path.display()))),
            };
        }
        Ok(std::env::var(KEY_VARIABLE).ok().and_then(|text| ApiKey::new(&text)))
    }
}

/// Serves the model at `path` on `address`, and says where.
pub fn serve(path: &Path, options: Options, address: SocketAddr, watch: bool) -> Result<()> {
    let app = App::open(path, options).context("the service cannot start")?;
    let items = app.served().model.n_items();
    let mut said = Ok(());
    fastvae_server::serve(app, Listen { address, watch }, |address| {
        tracing::info!(%address, items, model = %path.display(), "serving");
        said = print_line(format!("Serving {} on http://{address} (Ctrl-C stops)", path.display()));
    })
    .context("the service cannot start")?;
    said
}
