//! The paper's datasets, as far as they are at hand.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use fastvae::data::{Interactions, ReadOptions, Split, read, read_pair};
use serde_json::{Value, json};

use crate::commands::compare::pairs_hash;
use crate::failure::usage;

/// The paper leaves users and items with fewer interactions out.
const CORE: usize = 10;
/// How a file of a dataset may end.
const EXTENSIONS: [&str; 8] = ["mat", "fvcache", "npz", "mtx", "tsv.zst", "tsv", "csv.zst", "csv"];

/// A dataset of the paper's table 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dataset {
    /// The name of its files.
    pub name: &'static str,
    /// Its name in the paper.
    pub title: &'static str,
    /// Users, items and interactions in the paper's table 1.
    pub published: [usize; 3],
    /// Negatives that the paper draws for it (T).
    pub negatives: usize,
}

/// MovieLens-10M.
pub const ML10M: Dataset =
    Dataset { name: "ml10m", title: "ML10M", published: [47_292, 5_942, 2_001_164], negatives: 200 };
/// Gowalla.
pub const GOWALLA: Dataset =
    Dataset { name: "gowalla", title: "Gowalla", published: [29_858, 40_988, 1_027_464], negatives: 1000 };
/// Amazon books.
pub const AMAZON: Dataset =
    Dataset { name: "amazon", title: "Amazon", published: [56_257, 50_154, 1_418_076], negatives: 2000 };
/// Netflix.
pub const NETFLIX: Dataset =
    Dataset { name: "netflix", title: "Netflix", published: [422_624, 17_618, 53_417_358], negatives: 200 };
/// All, in the order of the paper's table 1.
pub const DATASETS: [Dataset; 4] = [ML10M, GOWALLA, AMAZON, NETFLIX];

/// One division of a dataset into what is learned and what is tested.
#[derive(Debug)]
pub struct Trial {
    /// The dataset's name and the trial's number, for files.
    pub name: String,
    /// Seed of what is random in training.
    pub seed: u64,
    /// What is learned from.
    pub train: Arc<Interactions>,
    /// What is tested.
    pub test: Interactions,
}

impl Trial {
    /// What tells this data from other data.
    pub fn fingerprint(&self) -> Value {
        json!({
            "trial": self.name,
            "n_users": self.train.n_users(),
            "n_items": self.train.n_items(),
            "n_train": self.train.n_interactions(),
            // As text: not every reader of JSON keeps 64 bits.
            "pairs": format!("{:016x}", pairs_hash(&self.test)),
        })
    }
}

impl Dataset {
    /// All of it, where `directory` has it in one file; only users and items of the 10-core.
    ///
    /// # Errors
    /// What reading reports.
    pub fn whole(self, directory: &Path) -> Result<Option<Interactions>> {
        let Some(path) = self.file(directory, "") else { return Ok(None) };
        let options = ReadOptions { k_core: Some(CORE), binarize: true, ..ReadOptions::default() };
        Ok(Some(read(path, &options)?))
    }

    /// Whether `directory` has it in some form.
    pub fn is_in(self, directory: &Path) -> bool {
        self.file(directory, "").is_some() || self.split_files(directory).is_some()
    }

    /// Trial `number`: 0 is the split that `directory` gives, where it gives one; otherwise 80 % of each user's items
    /// are learned from, chosen by the number.
    ///
    /// # Errors
    /// An error of usage where the dataset is not there; what reading reports.
    pub fn trial(self, directory: &Path, number: usize) -> Result<Trial> {
        let name = format!("{}-{number}", self.name);
        let seed = number as u64;
        if let (0, Some((train, test))) = (number, self.split_files(directory)) {
            let options = ReadOptions { binarize: true, ..ReadOptions::default() };
            let (train, test) = read_pair(train, test, &options)?;
            return Ok(Trial { name, seed, train: Arc::new(train), test });
        }
        let whole = self.whole(directory)?.ok_or_else(|| {
            usage(format!(
                "there is no {0} in {1}; give the directory of {0}.mat with --data",
                self.name,
                directory.display()
            ))
        })?;
        let parts = Split::Ratio(0.8).apply(&whole, seed)?;
        Ok(Trial { name, seed, train: Arc::new(parts.train), test: parts.test })
    }

    /// How many trials of at most `most` can be made of what is there.
    pub fn n_trials(self, directory: &Path, most: usize) -> usize {
        if self.file(directory, "").is_some() { most } else { most.min(1) }
    }

    fn split_files(self, directory: &Path) -> Option<(PathBuf, PathBuf)> {
        self.file(directory, ".train").zip(self.file(directory, ".test"))
    }

    fn file(self, directory: &Path, part: &str) -> Option<PathBuf> {
        let file = |extension| directory.join(format!("{}{part}.{extension}", self.name));
        EXTENSIONS.into_iter().map(file).find(|path| path.is_file())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dataset_that_is_not_there_says_what_to_give() {
        let directory = tempfile::tempdir().unwrap();
        assert!(!GOWALLA.is_in(directory.path()));
        let error = GOWALLA.trial(directory.path(), 0).unwrap_err().to_string();
        assert!(error.contains("gowalla.mat") && error.contains("--data"), "{error}");
    }

    #[test]
    fn trials_are_the_given_split_first_and_differ_then() {
        let directory = tempfile::tempdir().unwrap();
        let mut all = String::new();
        for user in 0..30 {
            (0..30)
                .filter(|item| (user + item) % 2 == 0)
                .for_each(|item| all += &format!("{user}\t{item}\n"));
        }
        std::fs::write(directory.path().join("ml10m.tsv"), &all).unwrap();
        let trials = [0, 1].map(|n| ML10M.trial(directory.path(), n).unwrap());
        assert_ne!(trials[0].test.items(), trials[1].test.items());
        assert_eq!(trials[0].train.n_interactions() + trials[0].test.n_interactions(), 450);
        assert_eq!(ML10M.n_trials(directory.path(), 5), 5);
        let (test, train): (Vec<&str>, Vec<&str>) = all.lines().partition(|line| line.ends_with("\t0"));
        std::fs::write(directory.path().join("ml10m.train.tsv"), train.join("\n")).unwrap();
        std::fs::write(directory.path().join("ml10m.test.tsv"), test.join("\n")).unwrap();
        let given = ML10M.trial(directory.path(), 0).unwrap();
        assert_eq!(given.test.n_interactions(), 15);
        assert_ne!(given.fingerprint(), trials[0].fingerprint());
    }
}
