//! [`App`]: everything that the routes share.

use std::path::Path;
use std::sync::Arc;

use fastvae::recommend::{Request, SearchOptions};

use crate::auth::ApiKey;
use crate::limits::Limits;
use crate::observe::Observer;
use crate::problem::Problem;
use crate::served::{Served, Store, Vectors};
use crate::wire::RecommendResponse;
use crate::workers::{Queue, Workers};

/// How a model is served, whatever it is reached by.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Bounds on requests.
    pub limits: Limits,
    /// The key that requests must carry, where one is set.
    pub api_key: Option<ApiKey>,
    /// Threads that compute; 0 means one for each core.
    pub threads: usize,
    /// What the approximate search should reach.
    pub search: SearchOptions,
    /// What lists are found with.
    pub vectors: Vectors,
}

/// Why a service could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The model could not be loaded.
    #[error(transparent)]
    Model(#[from] fastvae::Error),
    /// The threads could not be started.
    #[error("the threads cannot be started; give fewer: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
    /// The address could not be listened on.
    #[error("{address} cannot be listened on: {source}; {remedy}")]
    Listen {
        /// The address.
        address: String,
        /// The reason the operating system gave.
        source: std::io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// The operating system refused something else.
    #[error("the service cannot run: {0}")]
    Io(#[from] std::io::Error),
}

/// The state of a service; clones share it.
#[derive(Debug, Clone)]
pub struct App(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    store: Store,
    workers: Workers,
    /// Requests for lists that read every item, which are cheaper together.
    scans: Arc<Queue<Request, RecommendResponse>>,
    options: Options,
    observer: Observer,
}

impl App {
    /// Loads the model at `path` to serve it.
    ///
    /// # Errors
    /// What loading the model or starting the threads meets.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self, StartError> {
        let limits = options.limits;
        let workers = Workers::start(options.threads, limits.in_flight, limits.time)?;
        let path = path.as_ref();
        let store = workers.install(|| Store::open(path, options.search, options.vectors))?;
        let observer = Observer::default();
        observer.note_model(&store.current());
        Ok(Self(Arc::new(Shared { store, workers, scans: Arc::default(), options, observer })))
    }

    /// Bounds on requests.
    pub fn limits(&self) -> &Limits {
        &self.0.options.limits
    }

    /// The key that requests must carry.
    pub(crate) fn api_key(&self) -> Option<&ApiKey> {
        self.0.options.api_key.as_ref()
    }

    /// The model that is served now.
    pub fn served(&self) -> Arc<Served> {
        self.0.store.current()
    }

    /// Where the model comes from.
    pub fn store(&self) -> &Store {
        &self.0.store
    }

    /// Counts and times.
    pub(crate) fn observer(&self) -> &Observer {
        &self.0.observer
    }

    /// Runs `work` on the threads that compute, with the model that is served now.
    ///
    /// # Errors
    /// As [`Workers::run`].
    pub async fn compute<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Served) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let served = self.served();
        let app = self.clone();
        self.0
            .workers
            .run(move || {
                let started = std::time::Instant::now();
                let result = work(&served);
                app.observer().note_compute(started.elapsed());
                result
            })
            .await
    }

    /// As [`App::compute`], for `request` together with others that wait.
    ///
    /// # Errors
    /// As [`Workers::run_together`].
    pub(crate) async fn compute_together(
        &self,
        request: Request,
        work: impl FnOnce(&Served, &[Request]) -> Vec<Result<RecommendResponse, Problem>> + Send + 'static,
    ) -> Result<RecommendResponse, Problem> {
        let app = self.clone();
        let work = move |requests: &[Request]| {
            let started = std::time::Instant::now();
            let answers = work(&app.served(), requests);
            // Each of them took that long to whoever waits for it.
            requests.iter().for_each(|_| app.observer().note_compute(started.elapsed()));
            answers
        };
        self.0.workers.run_together(&self.0.scans, request, work).await
    }

    /// Loads the model file again; see [`Store::reload`]. Says in the log what came of it. Blocks.
    ///
    /// # Errors
    /// What loading it meets; the old model stays.
    pub fn reload(&self) -> fastvae::Result<Arc<Served>> {
        let loaded = self.0.workers.install(|| self.0.store.reload());
        match &loaded {
            Ok(served) => {
                tracing::info!(model = served.name, generation = served.generation, "loaded a model");
                self.observer().note_model(served);
            }
            Err(error) => tracing::error!(%error, "the model was not reloaded; the old one stays"),
        }
        self.observer().note_reload(loaded.is_ok());
        loaded
    }
}
