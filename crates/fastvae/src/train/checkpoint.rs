//! Checkpoints: everything that a run needs to go on bit for bit.
//!
//! Random numbers come by address, so no generator has a state to save: parameters, moments, the proposal's
//! state and the progress are all there is.

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::backend::{Part, RunState};
use crate::config::{Config, Schedule};
use crate::data::Interactions;
use crate::error::{Error, Result};
use crate::math::Matrix;
use crate::model_file::parts;
use crate::model_file::tensors::{TensorFile, TensorWriter};
use crate::network::{Parameters, Shape, Tables};
use crate::proposal::{State, StateData, StateTensor};
use crate::train::{Phase, Progress, TrainOptions, Training, TrainingInternals, active};

/// Version of the layout, checked when a checkpoint is read.
const FORMAT: &str = "fastvae checkpoint 5";

/// Some data, to refuse other ones.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Fingerprint {
    n_users: usize,
    n_items: usize,
    n_interactions: usize,
    /// FNV-1a over row boundaries, items and weights.
    hash: u64,
}

impl Fingerprint {
    fn of(data: &Interactions) -> Self {
        let values =
            data.offsets().iter().map(|&o| o as u64).chain(data.items().iter().map(|&i| u64::from(i)));
        let weights = data.weights().unwrap_or_default().iter().map(|weight| u64::from(weight.to_bits()));
        let hash = values
            .chain(weights)
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, value| (hash ^ value).wrapping_mul(0x100_0000_01b3));
        Self { n_users: data.n_users(), n_items: data.n_items(), n_interactions: data.n_interactions(), hash }
    }
}

/// What each phase of a run learns from, and what it stops by.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Fingerprints {
    train: Fingerprint,
    validation: Option<Fingerprint>,
    refit: Option<Fingerprint>,
}

impl Fingerprints {
    fn of(run: &Training) -> Self {
        let of = |data: &Option<Arc<Interactions>>| data.as_deref().map(Fingerprint::of);
        Self { train: Fingerprint::of(&run.train), validation: of(&run.validation), refit: of(&run.refit) }
    }

    /// What differs from what a checkpoint was of.
    fn difference(&self, then: &Self) -> Option<String> {
        let train = (Some(&then.train), Some(&self.train));
        let validation = (then.validation.as_ref(), self.validation.as_ref());
        let refit = (then.refit.as_ref(), self.refit.as_ref());
        let parts = [("data", train), ("validation part", validation), ("data to train on again", refit)];
        let size = |of: Option<&Fingerprint>| match of {
            None => "none".to_string(),
            Some(of) => {
                format!("{} users x {} items with {} interactions", of.n_users, of.n_items, of.n_interactions)
            }
        };
        let (what, (then, now)) = parts.into_iter().find(|(_, (then, now))| then != now)?;
        Some(format!("is of other data: its {what}: {}; given: {}, or other ones", size(then), size(now)))
    }
}

impl Training {
    /// Writes where the run stands to `path`, through a temporary file; the file there before stays whole until
    /// the new one is.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be written.
    pub fn save_checkpoint(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let json = |value: serde_json::Result<String>| value.expect("plain structs always become JSON");
        self.backend.download(&mut self.state, Part::Everything)?;
        let RunState { parameters, moments, proposal, .. } = &self.state;
        let state = proposal.as_ref().map(|proposal| proposal.state()).unwrap_or_default();
        let mut writer = TensorWriter::new();
        writer.metadata("kind", "checkpoint");
        writer.metadata("format", FORMAT);
        writer.metadata("config", json(serde_json::to_string(&self.config)));
        writer.metadata("progress", json(serde_json::to_string(&self.progress)));
        writer.metadata("data", json(serde_json::to_string(&Fingerprints::of(self))));
        let shapes = self.shapes();
        for (prefix, parameters) in [("now.", Some(parameters)), ("best.", self.best.as_ref())] {
            if let Some(parameters) = parameters {
                let tables = parameters.as_ref().map(|_, table| table.view());
                parts::write_tables(&mut writer, prefix, tables, shapes);
            }
        }
        for (name, table) in moments.as_ref() {
            writer.matrix(format!("first.{name}"), table.first.view());
            writer.matrix(format!("second.{name}"), table.second.view());
            writer.array::<u32>(format!("rows.{name}"), bytemuck::cast_slice(&table.rows));
        }
        for (name, tensor) in &state {
            let name = format!("proposal.{name}");
            match &tensor.data {
                StateData::U8(values) => writer.shaped(name, &tensor.shape, values),
                StateData::U32(values) => writer.shaped(name, &tensor.shape, values),
                StateData::F32(values) => writer.shaped(name, &tensor.shape, values),
            };
        }
        writer.write(path)
    }

    /// The run that was saved to `path`, on the same data, settings and options. Only `threads` and `device` may differ,
    /// and `epochs` where the learning rate's schedule does not depend on it.
    ///
    /// # Errors
    /// [`Error::ModelFile`] if the checkpoint is damaged or belongs to other data, [`Error::Config`] with the
    /// first setting that differs.
    pub fn resume(
        data: impl Into<Arc<Interactions>>,
        config: &Config,
        options: TrainOptions,
        path: impl AsRef<Path>,
    ) -> Result<Self> {
        let path = path.as_ref();
        let file = TensorFile::open(path)?;
        if file.metadata("format") != Some(FORMAT) {
            let found = file.metadata("format").unwrap_or("no format");
            let problem = format!("is not a checkpoint of this version ({found}, expected {FORMAT})");
            return Err(Error::model_file(path, problem, "start the training anew"));
        }
        let data = data.into();
        let settled = config.for_data(data.n_users(), data.n_items());
        same_settings(&settled, &metadata(&file, "config")?)?;
        let mut run = Self::new(data, config, options)?;
        if let Some(difference) = Fingerprints::of(&run).difference(&metadata(&file, "data")?) {
            let remedy = "give the data and options of the interrupted run";
            return Err(Error::model_file(path, difference, remedy));
        }
        run.progress = metadata::<Progress>(&file, "progress")?;
        let shapes = run.shapes();
        if file.contains("best.items") {
            let mut best = run.state.parameters.clone();
            read_into(&file, "best.", &mut best, shapes)?;
            run.best = Some(best);
        }
        let (pool, config) = (&run.pool, &run.phase_config());
        if run.progress.phase == Phase::Refit {
            let Some(data) = &run.refit else {
                return Err(file.damaged("it trains again on data that the run does not have"));
            };
            run.users = active(data);
            run.state = pool.install(|| RunState::new(config, data))?;
        }
        let RunState { parameters, moments, proposal, .. } = &mut run.state;
        read_into(&file, "now.", parameters, shapes)?;
        for (name, table) in moments.as_mut() {
            read_matrix(&file, &format!("first.{name}"), &mut table.first)?;
            read_matrix(&file, &format!("second.{name}"), &mut table.second)?;
            let rows: &mut [u32] = bytemuck::cast_slice_mut(&mut table.rows);
            rows.copy_from_slice(&file.array_of::<u32>(&format!("rows.{name}"), &[rows.len()])?);
        }
        if let Some(proposal) = proposal {
            proposal.restore(proposal_state(&file)?).map_err(|e| file.damaged(e.to_string()))?;
        }
        let data = if run.progress.phase == Phase::Refit { run.learned_part() } else { run.train_part() };
        let data = Arc::clone(data);
        run.backend.restart(&run.phase_config(), data, &run.state)?;
        Ok(run)
    }

    pub(super) fn shapes(&self) -> Tables<Shape> {
        Tables::<Shape>::of(&self.config, self.train.n_items())
    }
}

fn metadata<T: for<'de> Deserialize<'de>>(file: &TensorFile, key: &str) -> Result<T> {
    let text = file.metadata(key).ok_or_else(|| file.damaged(format!("there is no `{key}`")))?;
    serde_json::from_str(text).map_err(|e| file.damaged(format!("`{key}` cannot be read ({e})")))
}

/// Refuses to go on with settings that would make another run of it.
fn same_settings(now: &Config, then: &Config) -> Result<()> {
    let free_epochs = now.decay.schedule != Schedule::Linear;
    let then = Config {
        threads: now.threads,
        device: now.device,
        epochs: if free_epochs { now.epochs } else { then.epochs },
        ..then.clone()
    };
    if *now == then {
        return Ok(());
    }
    let fields = |config: &Config| match serde_json::to_value(config) {
        Ok(serde_json::Value::Object(fields)) => fields,
        _ => unreachable!("a struct becomes a JSON object"),
    };
    let (now, then) = (fields(now), fields(&then));
    let (key, value) = now
        .iter()
        .find(|(key, value)| then.get(*key) != Some(value))
        .expect("unequal settings differ somewhere");
    let before = then.get(key).unwrap_or(&serde_json::Value::Null);
    Err(Error::config(
        key,
        format!("is {value}, the interrupted run had {before}"),
        "resume with the settings it had, or start anew",
    ))
}

/// Reads tables into those that are there.
fn read_into(
    file: &TensorFile,
    prefix: &str,
    parameters: &mut Parameters,
    shapes: Tables<Shape>,
) -> Result<()> {
    for (name, (table, shape)) in parameters.as_mut().zip(shapes) {
        copy(&file.array_of::<f32>(&format!("{prefix}{name}"), &shape.axes())?, table);
    }
    Ok(())
}

/// Copies array `name` into a matrix of its shape.
fn read_matrix(file: &TensorFile, name: &str, matrix: &mut Matrix) -> Result<()> {
    copy(&file.array_of::<f32>(name, &[matrix.rows(), matrix.cols()])?, matrix);
    Ok(())
}

fn copy(values: &[f32], to: &mut Matrix) {
    let cols = to.cols();
    for row in 0..to.rows() {
        to.row_mut(row)[..cols].copy_from_slice(&values[row * cols..][..cols]);
    }
}

/// The arrays of the proposal, of whichever type each is.
fn proposal_state(file: &TensorFile) -> Result<State> {
    let mut state = State::new();
    for name in file.names() {
        let Some(short) = name.strip_prefix("proposal.") else { continue };
        let tensor = if let Ok(array) = file.array::<u8>(&name) {
            StateTensor::u8(array.shape(), array.to_vec())
        } else if let Ok(array) = file.array::<u32>(&name) {
            StateTensor::u32(array.shape(), array.to_vec())
        } else {
            let array = file.array::<f32>(&name)?;
            StateTensor::f32(array.shape(), array.to_vec())
        };
        state.push((short.to_owned(), tensor));
    }
    Ok(state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Kl, ModelKind, MomentKind, ProposalKind, Ridge};
    use crate::data::{GenerateOptions, generate};
    use crate::model::Blend;
    use crate::train::{Control, Outcome, Refit, TrainingInternals};

    fn data() -> Interactions {
        let options =
            GenerateOptions { users: 150, items: 80, interactions: 2000, ..GenerateOptions::default() };
        generate(options).unwrap()
    }

    fn config() -> Config {
        Config {
            hidden: 10,
            latent: 6,
            negatives: 12,
            codewords: 4,
            batch: 16,
            epochs: 5,
            item_bias: true,
            refresh_every: 2,
            validate_every: 1,
            patience: 5,
            kl: Kl { beta: None, gamma: Some(0.01), anneal_steps: 30 },
            // Data so small would do without a network.
            ridge: Ridge { weight: Some(2.0), ..Ridge::default() },
            ..Config::default()
        }
    }

    /// All parameters of a finished run, as bits, and what stands beside them.
    fn finished(mut run: Training) -> (Vec<u32>, Option<Blend>) {
        assert_eq!(run.run(|_| Control::Continue).unwrap(), Outcome::Finished);
        let blend = run.blend().copied();
        let tables = run.parameters().unwrap().as_ref().into_iter();
        (tables.flat_map(|(_, table)| table.data()).map(|value| value.to_bits()).collect(), blend)
    }

    fn options(refit: &Refit) -> TrainOptions {
        TrainOptions { refit: refit.clone(), ..TrainOptions::default() }
    }

    /// Runs until `stop` steps and epochs were told of, saves, and forgets everything else.
    fn interrupted(config: &Config, refit: &Refit, stop: usize, path: &Path) -> Phase {
        let mut run = Training::new(data(), config, options(refit)).unwrap();
        let mut told = 0;
        let outcome = run.run(|_| {
            told += 1;
            if told >= stop { Control::Stop } else { Control::Continue }
        });
        assert_eq!(outcome.unwrap(), Outcome::Interrupted);
        run.save_checkpoint(path).unwrap();
        run.phase()
    }

    #[test]
    fn a_resumed_run_ends_bit_for_bit_as_an_uninterrupted_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.checkpoint");
        let kinds = [ProposalKind::MidxPopularity, ProposalKind::Kernel, ProposalKind::Uniform];
        let configs = kinds.map(|proposal| Config { proposal, ..config() });
        let others = [
            Config { model: ModelKind::MultVae, ..config() },
            Config { moments: MomentKind::Full, ..config() },
            Config { encoder_rank: 3, ..config() },
            // Nothing is held out, and nothing chosen.
            Config { patience: 0, ..config() },
        ];
        let all = Refit::On(Arc::new(data()));
        let refits = [
            (config(), &all),
            (Config { patience: 0, ..config() }, &all),
            (Config { pair: true, encoder_rank: 3, ..config() }, &all),
        ];
        let never = configs.into_iter().chain(others).map(|config| (config, &Refit::Never));
        for (config, refit) in never.chain(refits) {
            let whole = finished(Training::new(data(), &config, options(refit)).unwrap());
            let mut phases = Vec::new();
            for stop in [1, 7, 10, 25, 45, 50, 51, 58, 75] {
                // Ten steps and epochs to each of five epochs, and a word when they are chosen.
                if matches!(refit, Refit::Never) && stop > 50 {
                    continue;
                }
                phases.push(interrupted(&config, refit, stop, &path));
                let threads = Config { threads: 3, ..config.clone() };
                let run = Training::resume(data(), &threads, options(refit), &path).unwrap();
                assert!(whole == finished(run), "{:?} stopped after {stop}", config.proposal);
            }
            let expected = if matches!(refit, Refit::Never) { 1 } else { 3 };
            phases.dedup();
            assert_eq!(phases.len(), expected, "{phases:?}");
        }
    }

    #[test]
    fn what_was_chosen_in_the_place_of_the_network_is_chosen_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.checkpoint");
        // An epoch, in which a network learns nothing.
        let config = Config { ridge: Ridge::default(), epochs: 1, ..config() };
        for refit in [Refit::WhereItMatters, Refit::On(Arc::new(data()))] {
            let model = |mut run: Training| {
                run.run(|_| Control::Continue).unwrap();
                run.finish(crate::train::Finish::default()).unwrap()
            };
            let whole = model(Training::new(data(), &config, options(&refit)).unwrap());
            let blend = whole.description().blend.unwrap();
            assert!(blend.without_network && whole.name() == "item-ridge", "{blend}");
            assert_eq!(whole.description().learned.unwrap().interactions, data().n_interactions());
            // In the middle, and when it was chosen.
            for stop in [7, 10, 11] {
                interrupted(&config, &refit, stop, &path);
                let resumed = model(Training::resume(data(), &config, options(&refit), &path).unwrap());
                assert_eq!(resumed.description().blend, Some(blend));
                assert_eq!(resumed.description().learned, whole.description().learned);
            }
        }
    }

    #[test]
    fn other_data_other_settings_and_damaged_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.checkpoint");
        interrupted(&config(), &Refit::Never, 3, &path);
        let resume = |data: Interactions, config: &Config, refit: &Refit| {
            Training::resume(data, config, options(refit), &path)
        };
        let options = GenerateOptions {
            users: 150,
            items: 80,
            interactions: 2000,
            seed: 9,
            ..GenerateOptions::default()
        };
        let other = generate(options).unwrap();
        let message = |run: Result<Training>| run.unwrap_err().to_string();
        let remedy = "give the data and options of the interrupted run";
        let told = message(resume(other, &config(), &Refit::Never));
        assert!(told.contains("its data: 150 users") && told.contains(remedy), "{told}");
        let told = message(resume(data(), &config(), &Refit::On(Arc::new(data()))));
        assert!(told.contains("its data to train on again: none") && told.contains(remedy), "{told}");
        let changed = Config { negatives: 13, ..config() };
        let told = message(resume(data(), &changed, &Refit::Never));
        assert!(told.contains("`negatives`: is 13, the interrupted run had 12"), "{told}");
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        assert!(resume(data(), &config(), &Refit::Never).is_err());
        let none = folder.path().join("none");
        assert!(Training::resume(data(), &config(), TrainOptions::default(), none).is_err());
    }

    #[test]
    fn a_run_with_a_given_validation_part_goes_on_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.checkpoint");
        let parts = crate::data::Split::Ratio(0.8).apply(&data(), 0).unwrap();
        let with = |part: &Interactions| TrainOptions {
            validation: Some(Arc::new(part.clone())),
            ..TrainOptions::default()
        };
        for patience in [0, 5] {
            let config = Config { patience, ..config() };
            let new = || Training::new(parts.train.clone(), &config, with(&parts.test)).unwrap();
            let mut whole = new();
            whole.run(|_| Control::Continue).unwrap();
            let mut run = new();
            let mut steps = 0;
            run.run(|_| {
                steps += 1;
                if steps == 25 { Control::Stop } else { Control::Continue }
            })
            .unwrap();
            run.save_checkpoint(&path).unwrap();
            let mut resumed =
                Training::resume(parts.train.clone(), &config, with(&parts.test), &path).unwrap();
            assert_eq!(resumed.validation_part().unwrap().items(), parts.test.items());
            resumed.run(|_| Control::Continue).unwrap();
            let values = |run: &Training| -> Vec<Option<f64>> {
                run.records().iter().map(|record| record.validation).collect()
            };
            assert_eq!(values(&whole), values(&resumed));
            assert!(values(&whole).iter().all(Option::is_some));
            assert!(finished(whole) == finished(resumed), "patience {patience}");
            // Another part, or none, is refused: what was kept would not be what is measured.
            for other in [with(&parts.train), TrainOptions::default()] {
                let told =
                    Training::resume(parts.train.clone(), &config, other, &path).unwrap_err().to_string();
                // Without one a part of its own would be held out of the data.
                let held_out = patience > 0 && told.contains("its data");
                assert!(told.contains("its validation part") || held_out, "{told}");
            }
        }
    }
}
