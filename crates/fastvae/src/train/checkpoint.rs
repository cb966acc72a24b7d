//! Checkpoints: everything that a run needs to go on bit for bit.
//!
//! Random numbers come by address, so no generator has a state to save: parameters, moments, the proposal's
//! state and the progress are all there is.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::backend::MomentTables;
use crate::config::{Config, Schedule};
use crate::data::Interactions;
use crate::error::{Error, Result};
use crate::math::Matrix;
use crate::model::Parameters;
use crate::model_file::tensors::{TensorFile, TensorWriter};
use crate::proposal::{State, StateData, StateTensor};
use crate::train::{Progress, Training};

/// Version of the layout, checked when a checkpoint is read.
const FORMAT: &str = "fastvae checkpoint 4";

/// What the run learns from, to refuse other data.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Fingerprint {
    n_users: usize,
    n_items: usize,
    n_interactions: usize,
    /// FNV-1a over row boundaries and items.
    hash: u64,
}

impl Fingerprint {
    fn of(data: &Interactions) -> Self {
        let values =
            data.offsets().iter().map(|&o| o as u64).chain(data.items().iter().map(|&i| u64::from(i)));
        let hash = values
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, value| (hash ^ value).wrapping_mul(0x100_0000_01b3));
        Self { n_users: data.n_users(), n_items: data.n_items(), n_interactions: data.n_interactions(), hash }
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
        let (parameters, moments, proposal) = self.backend.host()?.state();
        let state = proposal.map(|proposal| proposal.state()).unwrap_or_default();
        let mut writer = TensorWriter::new();
        writer.metadata("kind", "checkpoint");
        writer.metadata("format", FORMAT);
        writer.metadata("config", json(serde_json::to_string(&self.config)));
        writer.metadata("progress", json(serde_json::to_string(&self.progress)));
        writer.metadata("data", json(serde_json::to_string(&Fingerprint::of(&self.train))));
        write_parameters(&mut writer, "now", parameters);
        if let Some(best) = &self.best {
            write_parameters(&mut writer, "best", best);
        }
        write_moments(&mut writer, moments);
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

    /// The run that was saved to `path`, on the same data and settings. Only `threads` and `device` may differ, and
    /// `epochs` where the learning rate's schedule does not depend on it.
    ///
    /// # Errors
    /// [`Error::ModelFile`] if the checkpoint is damaged or belongs to other data, [`Error::Config`] with the
    /// first setting that differs.
    pub fn resume(config: &Config, data: Interactions, path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let file = TensorFile::open(path)?;
        if file.metadata("format") != Some(FORMAT) {
            let found = file.metadata("format").unwrap_or("no format");
            let problem = format!("is not a checkpoint of this version ({found}, expected {FORMAT})");
            return Err(Error::model_file(path, problem, "start the training anew"));
        }
        same_settings(config, &metadata(&file, "config")?)?;
        let mut run = Self::new(config, data)?;
        let (found, expected): (Fingerprint, _) = (metadata(&file, "data")?, Fingerprint::of(&run.train));
        if found != expected {
            let problem = format!(
                "was trained on {} users x {} items with {} interactions, these data have {} x {} with {} or other ones",
                found.n_users,
                found.n_items,
                found.n_interactions,
                expected.n_users,
                expected.n_items,
                expected.n_interactions
            );
            return Err(Error::model_file(path, problem, "give the data and options of the interrupted run"));
        }
        run.progress = metadata::<Progress>(&file, "progress")?;
        if run.progress.best.is_some() {
            let mut best = run.backend.parameters()?.clone();
            read_parameters(&file, "best", &mut best)?;
            run.best = Some(best);
        }
        let (parameters, moments, proposal) = run.backend.host()?.state_mut();
        read_parameters(&file, "now", parameters)?;
        read_moments(&file, moments)?;
        if let Some(proposal) = proposal {
            proposal.restore(proposal_state(&file)?).map_err(|e| file.damaged(e.to_string()))?;
        }
        run.backend.restored();
        Ok(run)
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

/// The tables of some parameters by name.
fn tables(p: &Parameters) -> [(&'static str, &Matrix); 5] {
    [
        ("encoder", &p.encoder),
        ("hidden_bias", &p.hidden_bias),
        ("head", &p.head),
        ("head_bias", &p.head_bias),
        ("items", &p.items),
    ]
}

fn write_parameters<'p>(writer: &mut TensorWriter<'p>, prefix: &str, parameters: &'p Parameters) {
    for (name, table) in tables(parameters) {
        writer.matrix(format!("{prefix}.{name}"), table.view());
    }
    if let Some(map) = &parameters.encoder_map {
        writer.matrix(format!("{prefix}.encoder_map"), map.view());
    }
    if let Some(bias) = &parameters.item_bias {
        writer.array(format!("{prefix}.item_bias"), bias);
    }
}

fn write_moments<'m>(writer: &mut TensorWriter<'m>, moments: &'m MomentTables) {
    let tables = [
        ("encoder", &moments.encoder),
        ("hidden_bias", &moments.hidden_bias),
        ("head", &moments.head),
        ("head_bias", &moments.head_bias),
        ("items", &moments.items),
    ];
    let map = moments.encoder_map.iter().map(|map| ("encoder_map", map));
    for (name, table) in tables.into_iter().chain(map) {
        writer.matrix(format!("first.{name}"), table.first.view());
        writer.matrix(format!("second.{name}"), table.second.view());
        writer.array::<u32>(format!("rows.{name}"), bytemuck::cast_slice(&table.rows));
    }
    if let Some((first, second)) = &moments.item_bias {
        writer.array("first.item_bias", first);
        writer.array("second.item_bias", second);
    }
}

fn read_parameters(file: &TensorFile, prefix: &str, p: &mut Parameters) -> Result<()> {
    for (name, table) in [
        ("encoder", &mut p.encoder),
        ("hidden_bias", &mut p.hidden_bias),
        ("head", &mut p.head),
        ("head_bias", &mut p.head_bias),
        ("items", &mut p.items),
    ] {
        read_matrix(file, &format!("{prefix}.{name}"), table)?;
    }
    if let Some(map) = &mut p.encoder_map {
        read_matrix(file, &format!("{prefix}.encoder_map"), map)?;
    }
    match &mut p.item_bias {
        Some(bias) => read_values(file, &format!("{prefix}.item_bias"), bias),
        None => Ok(()),
    }
}

fn read_moments(file: &TensorFile, moments: &mut MomentTables) -> Result<()> {
    let tables = [
        ("encoder", &mut moments.encoder),
        ("hidden_bias", &mut moments.hidden_bias),
        ("head", &mut moments.head),
        ("head_bias", &mut moments.head_bias),
        ("items", &mut moments.items),
    ];
    let map = moments.encoder_map.iter_mut().map(|map| ("encoder_map", map));
    for (name, table) in tables.into_iter().chain(map) {
        read_matrix(file, &format!("first.{name}"), &mut table.first)?;
        read_matrix(file, &format!("second.{name}"), &mut table.second)?;
        let rows: &mut [u32] = bytemuck::cast_slice_mut(&mut table.rows);
        rows.copy_from_slice(&file.array_of::<u32>(&format!("rows.{name}"), &[rows.len()])?);
    }
    if let Some((first, second)) = &mut moments.item_bias {
        read_values(file, "first.item_bias", first)?;
        read_values(file, "second.item_bias", second)?;
    }
    Ok(())
}

/// Copies array `name` into a matrix of its shape.
fn read_matrix(file: &TensorFile, name: &str, matrix: &mut Matrix) -> Result<()> {
    let (rows, cols) = (matrix.rows(), matrix.cols());
    let array = file.array_of::<f32>(name, &[rows, cols])?;
    for row in 0..rows {
        matrix.row_mut(row)[..cols].copy_from_slice(&array[row * cols..][..cols]);
    }
    Ok(())
}

fn read_values(file: &TensorFile, name: &str, values: &mut [f32]) -> Result<()> {
    values.copy_from_slice(&file.array_of::<f32>(name, &[values.len()])?);
    Ok(())
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
    use crate::config::{Kl, ModelKind, MomentKind, ProposalKind};
    use crate::data::{GenerateOptions, Generator};
    use crate::train::{Control, Event, Outcome};

    fn data() -> Interactions {
        let options =
            GenerateOptions { users: 150, items: 80, interactions: 2000, ..GenerateOptions::default() };
        Generator::new(options).unwrap().interactions().unwrap()
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
            ..Config::default()
        }
    }

    /// All parameters of a finished run, as bits.
    fn finished(mut run: Training) -> Vec<u32> {
        assert_eq!(run.run(|_, _| Ok(Control::Continue)).unwrap(), Outcome::Finished);
        let p = run.parameters().unwrap();
        let tables = tables(p).into_iter().flat_map(|(_, table)| table.data());
        let map = p.encoder_map.iter().flat_map(|map| map.data());
        tables.chain(map).chain(p.item_bias.iter().flatten()).map(|value| value.to_bits()).collect()
    }

    /// Runs until step `stop` of the run, saves, and forgets everything else.
    fn interrupted(config: &Config, stop: usize, path: &Path) {
        let mut run = Training::new(config, data()).unwrap();
        let mut steps = 0;
        let outcome = run.run(|_, event| {
            steps += usize::from(matches!(event, Event::Step(_)));
            Ok(if steps >= stop { Control::Stop } else { Control::Continue })
        });
        assert_eq!(outcome.unwrap(), Outcome::Interrupted);
        run.save_checkpoint(path).unwrap();
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
        ];
        for config in configs.into_iter().chain(others) {
            let whole = finished(Training::new(&config, data()).unwrap());
            for stop in [1, 7, 9, 23, 40] {
                interrupted(&config, stop, &path);
                let threads = Config { threads: 3, ..config.clone() };
                let resumed = finished(Training::resume(&threads, data(), &path).unwrap());
                assert!(whole == resumed, "{:?} stopped after {stop} steps", config.proposal);
            }
        }
    }

    #[test]
    fn other_data_other_settings_and_damaged_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.checkpoint");
        interrupted(&config(), 3, &path);
        let options = GenerateOptions {
            users: 150,
            items: 80,
            interactions: 2000,
            seed: 9,
            ..GenerateOptions::default()
        };
        let other = Generator::new(options).unwrap().interactions().unwrap();
        let message = Training::resume(&config(), other, &path).unwrap_err().to_string();
        assert!(message.contains("give the data and options of the interrupted run"), "{message}");
        let changed = Config { negatives: 13, ..config() };
        let message = Training::resume(&changed, data(), &path).unwrap_err().to_string();
        assert!(message.contains("`negatives`: is 13, the interrupted run had 12"), "{message}");
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        assert!(Training::resume(&config(), data(), &path).is_err());
        assert!(Training::resume(&config(), data(), folder.path().join("none")).is_err());
    }
}
