//! The command line as people call it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod baselines;
mod cache;
mod commands;
mod device;
mod learned;
mod messages;
mod real_data;
mod resume;
mod serve;
mod serving;

use std::path::PathBuf;

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;

/// A directory of its own for one test.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// `fastvae` in this directory.
    fn fastvae(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fastvae"));
        command.current_dir(self.0.path()).args(arguments);
        command
    }

    /// Standard output of a call that succeeds.
    fn output(&self, arguments: &[&str]) -> String {
        let output = self.fastvae(arguments).assert().success().get_output().stdout.clone();
        String::from_utf8(output).unwrap()
    }

    /// The one JSON object on standard output of a call that succeeds.
    fn json(&self, arguments: &[&str]) -> Value {
        let mut arguments = arguments.to_vec();
        arguments.push("--json");
        let output = self.output(&arguments);
        let value: Value = serde_json::from_str(&output).unwrap_or_else(|e| panic!("{e}: {output}"));
        assert!(value.is_object(), "{output}");
        value
    }

    /// Standard error of a call that fails with `code`.
    fn failure(&self, arguments: &[&str], code: i32) -> String {
        let assert = self.fastvae(arguments).assert().failure();
        let output = assert.get_output();
        let error = String::from_utf8(output.stderr.clone()).unwrap();
        assert_eq!(output.status.code(), Some(code), "{error}");
        assert!(output.stdout.is_empty(), "nothing belongs on standard output: {output:?}");
        error
    }

    /// Writes a small generated catalogue with titles: `data.tsv.zst`, `titles.csv`.
    fn with_data() -> Self {
        let place = Self::new();
        place.output(&[
            "generate",
            "-o",
            "data.tsv.zst",
            "--users",
            "400",
            "--items",
            "200",
            "--interactions",
            "8000",
            "--genres",
            "8",
            "--titles",
            "titles.csv",
        ]);
        place
    }

    /// The arguments of a short training of `data.tsv.zst` that learns something.
    fn train(more: &[&'static str]) -> Vec<&'static str> {
        let mut arguments = vec![
            "train",
            "data.tsv.zst",
            "-o",
            "model.fastvae",
            "--titles",
            "titles.csv",
            // So small a catalogue would do without a network.
            "--set",
            "ridge.weight=2",
            "--set",
            "hidden=64",
            "--set",
            "latent=32",
            "--set",
            "batch=32",
            "--set",
            "negatives=50",
            "--set",
            "codewords=8",
            "--set",
            "learning_rate=0.005",
            "--epochs",
            "12",
        ];
        arguments.extend_from_slice(more);
        arguments
    }
}
