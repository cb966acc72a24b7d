//! Fitting: the library's loops, with the interpreter asked now and then whether to go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use fastvae::Config;
use fastvae::baseline::{Kind, Settings, fit};
use fastvae::data::Statistics;
use fastvae::recommend::{Search, SearchOptions};
use fastvae::train::{Control, Event, Training};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::errors::{bad_settings, raised};
use crate::interactions::Interactions;
use crate::model::{Recommender, Trained};
use crate::threads::pool;

/// Time between two looks at signals and two messages about steps: as often as a person notices.
const PAUSE: Duration = Duration::from_millis(100);

/// Whoever watches a fit from Python: `observer(json) -> whether to stop`.
struct Watcher {
    observer: Option<Py<PyAny>>,
    looked: Instant,
    raised: Option<PyErr>,
}

impl Watcher {
    fn new(observer: Option<Py<PyAny>>) -> Self {
        Self { observer, looked: Instant::now(), raised: None }
    }

    /// Whether a message that can be left out is due.
    fn is_due(&self) -> bool {
        self.looked.elapsed() >= PAUSE
    }

    /// Handles signals, tells the observer, and answers for both.
    fn tell(&mut self, message: impl FnOnce() -> Value) -> Control {
        self.ask(|py, observer| match observer {
            None => Ok(false),
            Some(observer) => observer.bind(py).call1((message().to_string(),))?.is_truthy(),
        })
    }

    /// Handles signals.
    fn look(&mut self) -> Control {
        self.ask(|_, _| Ok(false))
    }

    fn ask(&mut self, question: impl FnOnce(Python<'_>, Option<&Py<PyAny>>) -> PyResult<bool>) -> Control {
        self.looked = Instant::now();
        if self.raised.is_some() {
            return Control::Stop;
        }
        let answer = Python::attach(|py| {
            py.check_signals()?;
            question(py, self.observer.as_ref())
        });
        match answer {
            Ok(false) => Control::Continue,
            Ok(true) => Control::Stop,
            Err(error) => {
                self.raised = Some(error);
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

/// Trains a model of `config` (JSON).
#[pyfunction]
#[pyo3(signature = (data, config, validation=None, observer=None))]
pub fn train(
    py: Python<'_>,
    data: &Interactions,
    config: &str,
    validation: Option<&Interactions>,
    observer: Option<Py<PyAny>>,
) -> PyResult<Recommender> {
    let config: Config = settings(serde_json::to_value(Config::default()), config)?;
    let mut watcher = Watcher::new(observer);
    let pool = pool(config.threads)?;
    let model = py.detach(|| {
        let whole = data.rows.clone();
        let mut run = match validation {
            Some(validation) => Training::with_validation(&config, whole.clone(), validation.rows.clone())?,
            None => Training::new(&config, whole.clone())?,
        };
        run.run(|_, event| {
            Ok(match event {
                Event::Epoch(record) => {
                    watcher.tell(|| serde_json::to_value(record).expect("a record is JSON"))
                }
                Event::Step(step) if watcher.is_due() => watcher.tell(|| {
                    json!({ "epoch": step.epoch, "step": step.step, "n_steps": step.n_steps, "loss": step.loss })
                }),
                _ => Control::Continue,
            })
        })?;
        if watcher.raised.is_some() {
            return Err(fastvae::Error::Interrupted);
        }
        let mut model = run.into_model()?;
        let statistics = serde_json::to_value(Statistics::of(&whole)).expect("statistics are JSON");
        model.description_mut().statistics = Some(statistics);
        if model.index().is_some() {
            let options = SearchOptions::default();
            let search = pool.install(|| Search::calibrate(&model, Some(&whole), &options))?;
            model.description_mut().search = Some(search.calibration());
        }
        model.with_users(Arc::new(whole))
    });
    Ok(Recommender { trained: Trained::Model(Box::new(watcher.outcome(model)?)) })
}

/// Trains the baseline `kind` with the default settings changed as `settings` (JSON) say.
#[pyfunction]
#[pyo3(signature = (data, kind, settings, threads=0, observer=None))]
pub fn fit_baseline(
    py: Python<'_>,
    data: &Interactions,
    kind: &str,
    settings: &str,
    threads: usize,
    observer: Option<Py<PyAny>>,
) -> PyResult<Recommender> {
    let kind: Kind = kind.parse().map_err(raised)?;
    let settings: Settings = self::settings(serde_json::to_value(kind.settings()), settings)?;
    let mut watcher = Watcher::new(observer);
    let pool = pool(threads)?;
    let baseline = py.detach(|| {
        watched(&mut watcher, |tell| {
            let baseline = pool.install(|| {
                fit(&data.rows, &settings, &mut |progress| {
                    tell(json!({ "epoch": progress.done, "epochs": progress.total, "loss": progress.loss }))
                })
            })?;
            baseline.with_users(Arc::new(data.rows.clone()))
        })
    });
    Ok(Recommender { trained: Trained::Baseline(Box::new(watcher.outcome(baseline)?)) })
}

/// Runs `work` on another thread and watches from this one: Python handles signals on the main thread alone, and
/// baselines report from within the pool.
fn watched<T: Send>(
    watcher: &mut Watcher,
    work: impl FnOnce(&(dyn Fn(Value) -> Control + Sync)) -> fastvae::Result<T> + Send,
) -> fastvae::Result<T> {
    let stopped = &AtomicBool::new(false);
    let (sender, messages) = mpsc::channel();
    std::thread::scope(|scope| {
        let worker = scope.spawn(move || {
            work(&move |message| {
                // Who watches outlives the work: a message is never lost.
                let _ = sender.send(message);
                if stopped.load(Ordering::Relaxed) { Control::Stop } else { Control::Continue }
            })
        });
        loop {
            let control = match messages.recv_timeout(PAUSE) {
                Ok(message) => watcher.tell(|| message),
                Err(RecvTimeoutError::Timeout) => watcher.look(),
                Err(RecvTimeoutError::Disconnected) => break,
            };
            if control == Control::Stop {
                stopped.store(true, Ordering::Relaxed);
            }
        }
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The default configuration as JSON; `preset` is `default` or `paper`.
#[pyfunction]
#[pyo3(signature = (preset="default"))]
pub fn default_config(preset: &str) -> PyResult<String> {
    let config = match preset {
        "default" => Config::default(),
        "paper" => Config::paper(),
        other => {
            return Err(PyValueError::new_err(format!(
                "there is no preset {other:?}; use \"default\" or \"paper\""
            )));
        }
    };
    Ok(serde_json::to_string(&config).expect("a configuration is JSON"))
}

/// The default settings of a baseline as JSON.
#[pyfunction]
pub fn default_settings(kind: &str) -> PyResult<String> {
    let kind: Kind = kind.parse().map_err(raised)?;
    Ok(serde_json::to_string(&kind.settings()).expect("settings are JSON"))
}

/// `defaults` with the keys of `changes` (JSON), in the library's struct.
pub fn settings<T: DeserializeOwned>(defaults: serde_json::Result<Value>, changes: &str) -> PyResult<T> {
    let defaults = defaults.expect("plain structs always become JSON");
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
