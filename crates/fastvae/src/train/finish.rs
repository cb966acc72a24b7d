//! The end of every training: what was learned becomes a [`Model`].

use std::sync::Arc;

use crate::baseline::{self, Method};
use crate::config::Config;
use crate::control::Control;
use crate::data::{Interactions, Statistics, Titles};
use crate::error::Result;
use crate::model::{Description, Learned, Model, Vae};
use crate::recommend::SearchOptions;
use crate::train::blend::Solved;
use crate::train::{Event, TrainOptions, Training, TrainingInternals};

/// What a model is given when its training ends.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Finish {
    /// All interactions that there are, those included that were held out; what the model learned from where absent.
    pub data: Option<Arc<Interactions>>,
    /// What to call the items.
    pub titles: Option<Titles>,
    /// Whether the histories in the data are kept in the model, so that it can recommend to users by name.
    pub store_users: bool,
}

/// Trains a variational autoencoder on `data` from start to end; `observer` is told of every step and epoch, and may end
/// the training: the parameters of the best validation are kept, or those of then.
///
/// # Errors
/// What [`Training::new`] and [`Training::run`] report.
pub fn train(
    data: impl Into<Arc<Interactions>>,
    config: &Config,
    observer: impl FnMut(&Event) -> Control,
) -> Result<Model> {
    let data = data.into();
    let mut training = Training::new(Arc::clone(&data), config, TrainOptions::default())?;
    training.run(observer)?;
    training.finish(Finish { data: Some(data), ..Finish::default() })
}

/// Trains the baseline that `settings` name on `data`; `observer` is told of each pass.
///
/// # Errors
/// [`crate::Error::Config`] for settings that cannot work, [`crate::Error::Data`] if there is nothing to learn from or the
/// catalogue is too large for the method, [`crate::Error::Interrupted`] if the observer asked to stop.
pub fn fit(
    data: impl Into<Arc<Interactions>>,
    settings: &baseline::Settings,
    observer: impl FnMut(&Event) -> Control,
) -> Result<Model> {
    fit_with(data, settings, Finish::default(), observer)
}

/// As [`fit`], and the model is given what `with` says.
///
/// # Errors
/// As [`fit`]; [`crate::Error::Data`] if the data or titles of `with` are of other items.
pub fn fit_with(
    data: impl Into<Arc<Interactions>>,
    settings: &baseline::Settings,
    with: Finish,
    mut observer: impl FnMut(&Event) -> Control,
) -> Result<Model> {
    let data = data.into();
    let (method, settings) = baseline::learn(&data, settings, &mut |pass| {
        observer(&Event::Pass { done: pass.done, total: pass.total, loss: pass.loss })
    })?;
    let description = Description::new(settings.into());
    let all = with.data.as_ref().unwrap_or(&data).n_interactions();
    let learned = Learned { interactions: data.n_interactions(), ..Learned::all(all) };
    finish(method, &data, description, learned, with)
}

impl Training {
    /// Ends the run and makes a model of its [`Training::parameters`], with an index over its item vectors.
    ///
    /// # Errors
    /// What the device and the index report; [`crate::Error::Data`] if data or titles are of other items.
    pub fn finish(mut self, with: Finish) -> Result<Model> {
        // Stopped within its second phase, a run leaves what the first has chosen.
        let refit = self.refits() && self.is_finished();
        let without_network = self.is_without_network();
        let learned_from = Arc::clone(match refit {
            true => self.learned_part(),
            // The linear part learns from the validation part too.
            false if without_network => &self.data,
            false => self.train_part(),
        });
        let epochs = match (refit, self.best()) {
            (true, _) => self.chosen_epochs(),
            (false, Some(best)) if self.best.is_some() => best.epoch,
            _ => self.progress.epoch,
        };
        let all = with.data.as_ref().unwrap_or(&learned_from).n_interactions();
        let learned = Learned {
            interactions: learned_from.n_interactions(),
            epochs: (!without_network).then_some(epochs),
            refit,
            pair: self.is_pair(),
            ..Learned::all(all)
        };
        self.parameters()?;
        self.solve()?;
        let Self { config, state, backend, pool, progress, best, pair, solved, .. } = self;
        drop(backend);
        let mut description = Description::new(config.clone().into());
        description.validation = progress.validation;
        description.epochs = progress.records;
        if let Some((evaluation, measured_on)) = progress.evaluation {
            (description.evaluation, description.measured_on) = (Some(evaluation), Some(measured_on));
        }
        description.blend = progress.blend.and_then(|chosen| chosen.blend);
        let parameters = pair.or(best).unwrap_or(state.parameters);
        let linear = match solved {
            Some(Solved::Alone(method, settings)) => {
                description.settings = settings.into();
                return pool.install(|| finish(method, &learned_from, description, learned, with));
            }
            Some(Solved::Beside(linear)) => Some(linear),
            None => None,
        };
        let method = Box::new(Vae::new(&config, parameters, learned.pair).with_linear(linear));
        pool.install(|| finish(method, &learned_from, description, learned, with))
    }
}

/// A model of what a method has learned from `part`: described, indexed, and its search calibrated.
fn finish(
    method: Box<dyn Method>,
    part: &Arc<Interactions>,
    mut description: Description,
    learned: Learned,
    with: Finish,
) -> Result<Model> {
    let data = with.data.as_ref().unwrap_or(part);
    description.statistics = Some(Statistics::of(data));
    description.learned = Some(learned);
    let mut model = Model::of(method, part.item_ids().clone(), part.item_counts(), description)?;
    model.build_index(None)?;
    model.calibrate(Some(data), &SearchOptions::default())?;
    if let Some(titles) = with.titles {
        model = model.with_titles(titles)?;
    }
    if with.store_users {
        model = model.with_users(Arc::clone(data))?;
    }
    Ok(model)
}
