//! Fitting: the library's loops, with the interpreter asked now and then whether to go on.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use fastvae::Config;
use fastvae::baseline::Kind;
use fastvae::data::{self, IdMap, InteractionsBuilder, TitleOptions, Titles};
use fastvae::eval::{Measure, Metric};
use fastvae::internals::train::fit_with;
use fastvae::model::Settings;
use fastvae::train::{Control, Event, Finish, Refit, TrainOptions, Training};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::errors::{bad_settings, raised};
use crate::interactions::Interactions;
use crate::model::Model;
use crate::threads::pool;

/// Time between two looks at signals and two messages about steps: as often as a person notices.
const PAUSE: Duration = Duration::from_millis(100);
/// What is measured on the validation part beside what early stopping watches.
const METRICS: [Metric; 1] = [Metric::new(Measure::Recall, 50)];

/// What to call the items.
#[derive(FromPyObject)]
pub enum ItemTitles {
    /// A file of titles by identifier.
    File(PathBuf),
    /// One for each item, in order; empty where there is none.
    Each(Vec<String>),
}

impl ItemTitles {
    fn of(self, items: &IdMap) -> PyResult<Titles> {
        let titles = match self {
            Self::File(path) => Titles::read(path, &TitleOptions::default(), items).map_err(raised)?.0,
            Self::Each(titles) => Titles::new(titles),
        };
        if titles.len() == items.len() && (0..items.len() as u32).any(|item| titles.get(item).is_some()) {
            return Ok(titles);
        }
        Err(PyValueError::new_err(format!(
            "none of the titles is of one of the {} items; give titles by the identifiers of the data",
            items.len()
        )))
    }
}

/// Trains a model with the settings (JSON) of the method that their key `model` names.
#[pyfunction]
#[pyo3(signature = (data, settings, titles=None, validation=None, refit=None, threads=0, observer=None))]
pub fn fit(
    data: &Bound<'_, Interactions>,
    settings: &str,
    titles: Option<ItemTitles>,
    validation: Option<&Interactions>,
    refit: Option<bool>,
    threads: usize,
    observer: Option<Py<PyAny>>,
) -> PyResult<Model> {
    let (py, rows) = (data.py(), &data.get().rows);
    let settings = parsed(settings)?;
    let mut with = Finish::default();
    with.titles = titles.map(|titles| titles.of(rows.item_ids())).transpose()?;
    with.store_users = true;
    let held_out = validation.map(|part| &part.rows);
    let pool = pool(threads)?;
    let mut watcher = Watcher { observer, raised: None };
    let model = py.detach(|| {
        watched(&mut watcher, |mut watched| match &settings {
            Settings::Vae(config) => {
                let config = Config { threads, ..config.clone() };
                let (refit, data) = again(refit, rows, held_out, &config)?;
                let mut options = TrainOptions::default();
                options.validation = held_out.cloned().map(Arc::new);
                options.refit = refit;
                options.metrics = METRICS.to_vec();
                let mut run = Training::new(rows.clone(), &config, options)?;
                run.run(|event| watched.observe(event))?;
                if watched.is_over() {
                    return Err(fastvae::Error::Interrupted);
                }
                with.data = Some(data);
                run.finish(with)
            }
            Settings::Baseline(settings) => {
                pool.install(|| fit_with(rows.clone(), settings, with, |event| watched.observe(event)))
            }
        })
    });
    Ok(Model { model: watcher.outcome(model)? })
}

/// What a model is trained on again, and all the data that there are.
fn again(
    refit: Option<bool>,
    rows: &data::Interactions,
    held_out: Option<&data::Interactions>,
    config: &Config,
) -> fastvae::Result<(Refit, Arc<data::Interactions>)> {
    let data = Arc::new(rows.clone());
    Ok(match (refit, held_out) {
        (None, _) => (Refit::WhereItMatters, data),
        (Some(false), _) => (Refit::Never, data),
        // Without a validation part all is learned from the first time.
        (Some(true), None) if config.patience == 0 => (Refit::Never, data),
        (Some(true), None) => (Refit::On(Arc::clone(&data)), data),
        (Some(true), Some(part)) => {
            let data = Arc::new(together(rows, part)?);
            (Refit::On(Arc::clone(&data)), data)
        }
    })
}

/// The interactions of both, which are of the same users and items.
fn together(a: &data::Interactions, b: &data::Interactions) -> fastvae::Result<data::Interactions> {
    let mut builder = InteractionsBuilder::new();
    for rows in [a, b] {
        for user in 0..rows.n_users() {
            let row = rows.row(user);
            for (at, &item) in row.items.iter().enumerate() {
                let weight = row.weights.map_or(1.0, |weights| weights[at]);
                builder.push(user as u32, item, Some(weight), None);
            }
        }
    }
    Ok(builder.build(Arc::clone(a.user_ids()), Arc::clone(a.item_ids()))?.0)
}

/// Whoever watches a fit from Python: `observer(json) -> whether to stop`.
struct Watcher {
    observer: Option<Py<PyAny>>,
    raised: Option<PyErr>,
}

impl Watcher {
    /// Handles signals, tells the observer of a message, and answers for both.
    fn look(&mut self, message: Option<Value>) -> Control {
        let answer = Python::attach(|py| {
            py.check_signals()?;
            match (&self.observer, message) {
                (Some(observer), Some(message)) => {
                    observer.bind(py).call1((message.to_string(),))?.is_truthy()
                }
                _ => Ok(false),
            }
        });
        match answer {
            Ok(false) => Control::Continue,
            Ok(true) => Control::Stop,
            Err(error) => {
                self.raised.get_or_insert(error);
                Control::Stop
            }
        }
    }

    /// What was raised while watching comes before what the library says about being stopped.
    fn outcome<T>(self, result: fastvae::Result<T>) -> PyResult<T> {
        match self.raised {
            Some(error) => Err(error),
            None => result.map_err(raised),
        }
    }
}

/// The side of the work: what it has to tell waits for an answer.
struct Watched<'a> {
    messages: Sender<Value>,
    answers: Receiver<Control>,
    is_over: &'a AtomicBool,
    told: Instant,
}

impl Watched<'_> {
    /// Whether something was raised, and nobody waits for a model any more.
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn observe(&mut self, event: &Event) -> Control {
        let message = match event {
            Event::Epoch(record) => Some(serde_json::to_value(record).expect("a record is JSON")),
            Event::Pass { done, total, loss } => {
                Some(json!({ "epoch": done, "epochs": total, "loss": loss }))
            }
            Event::Step(step) if self.told.elapsed() >= PAUSE => Some(json!({
                "epoch": step.epoch, "step": step.step, "n_steps": step.n_steps, "loss": step.loss, "refit": step.refit
            })),
            _ => None,
        };
        if self.is_over() {
            return Control::Stop;
        }
        let Some(message) = message else { return Control::Continue };
        self.told = Instant::now();
        // Who watches outlives the work: a message is never lost.
        let _ = self.messages.send(message);
        self.answers.recv().unwrap_or(Control::Stop)
    }
}

/// Runs `work` on another thread and watches from this one: Python handles signals on the main thread alone, and
/// baselines report from within the pool.
fn watched<T: Send>(
    watcher: &mut Watcher,
    work: impl FnOnce(Watched<'_>) -> fastvae::Result<T> + Send,
) -> fastvae::Result<T> {
    let is_over = &AtomicBool::new(false);
    let (sender, messages) = mpsc::channel();
    let (answer, answers) = mpsc::channel();
    std::thread::scope(|scope| {
        let watched = Watched { messages: sender, answers, is_over, told: Instant::now() };
        let worker = scope.spawn(move || work(watched));
        loop {
            match messages.recv_timeout(PAUSE) {
                Ok(message) => {
                    let control = watcher.look(Some(message));
                    is_over.store(watcher.raised.is_some(), Ordering::Relaxed);
                    let _ = answer.send(control);
                }
                Err(RecvTimeoutError::Timeout) => {
                    watcher.look(None);
                    is_over.store(watcher.raised.is_some(), Ordering::Relaxed);
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The settings of a preset of the method `model`, as JSON.
#[pyfunction]
#[pyo3(signature = (model="fastvae", preset="default"))]
pub fn default_settings(model: &str, preset: &str) -> PyResult<String> {
    let settings = match (model, preset) {
        ("fastvae", "quick") => Settings::Vae(Config::quick()),
        ("fastvae", "best") => Settings::Vae(Config::best()),
        ("fastvae", "paper") => Settings::Vae(Config::paper()),
        ("fastvae", _) => Settings::Vae(Config::default()),
        (baseline, "paper") => Settings::Baseline(baseline.parse::<Kind>().map_err(raised)?.paper_settings()),
        (baseline, _) => Settings::Baseline(baseline.parse::<Kind>().map_err(raised)?.settings()),
    };
    Ok(serde_json::to_string(&settings).expect("settings are JSON"))
}

/// The settings of any method, with its defaults where `changes` (JSON) are silent.
fn parsed(changes: &str) -> PyResult<Settings> {
    let given: Value = serde_json::from_str(changes).map_err(|e| bad_settings(None, e))?;
    let baseline = given["model"].as_str().and_then(|name| name.parse::<Kind>().ok());
    settings(baseline.map_or(Settings::Vae(Config::default()), |kind| kind.settings().into()), changes)
}

/// `defaults` with the keys of `changes` (JSON), in the library's struct.
pub fn settings<T: DeserializeOwned>(defaults: impl serde::Serialize, changes: &str) -> PyResult<T> {
    let defaults = serde_json::to_value(defaults).expect("plain structs always become JSON");
    let changes: Map<String, Value> = serde_json::from_str(changes).map_err(|e| bad_settings(None, e))?;
    let with = |changes: Map<String, Value>| {
        let mut value = defaults.clone();
        if let Value::Object(value) = &mut value {
            value.extend(changes);
        }
        serde_json::from_value::<T>(value)
    };
    with(changes.clone()).map_err(|error| {
        // serde does not say which key it was; the first that fails alone is it.
        let fails = |(key, value): (String, Value)| {
            with(Map::from_iter([(key.clone(), value)])).err().map(|e| (key, e))
        };
        match changes.into_iter().find_map(fails) {
            Some((key, error)) => bad_settings(Some(&key), error),
            None => bad_settings(None, error),
        }
    })
}
