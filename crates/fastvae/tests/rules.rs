//! The rules of CONTRIBUTING.md that a reader cannot see at a glance: where `unsafe` and explicit SIMD may stand, that a
//! module uses only modules above it in `lib.rs`, and that what documents name is there.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The files with `unsafe` code, and why each has it.
const UNSAFE: [(&str, &str); 19] = [
    ("backend/cpu/item_rows.rs", "threads update rows of one table, each its own"),
    ("backend/cpu/team.rs", "work that borrows is handed to threads that wait for it"),
    ("backend/cuda/device.rs", "the driver's calls"),
    ("backend/cuda/full_softmax.rs", "launches of kernels"),
    ("backend/cuda/index.rs", "launches of kernels"),
    ("backend/cuda/mod.rs", "launches of kernels"),
    ("backend/cuda/rank.rs", "launches of kernels"),
    ("backend/cuda/softmax.rs", "launches of kernels"),
    ("backend/cuda/state.rs", "launches of kernels"),
    ("data/cache/open.rs", "a file is mapped"),
    ("data/storage.rs", "a test maps a file"),
    ("loss/negative_sum.rs", "rows by places that were checked before, a vector of them at a time"),
    ("math/dense.rs", "the products' kernels take pointers"),
    ("math/lines.rs", "memory in whole cache lines and huge pages"),
    ("math/list.rs", "numbers of other types in that memory"),
    ("math/simd.rs", "prefetching"),
    ("model_file/tensors.rs", "a file is mapped, and its pages given back"),
    ("proposal/members.rs", "members of cells by places that were checked before"),
    ("resources.rs", "the system's counters"),
];

/// The files outside `math` with loops over explicit vectors: what they do is done nowhere else.
const SIMD: [&str; 30] = [
    "backend/cpu/dense_layers.rs",
    "backend/cpu/full_softmax.rs",
    "backend/cpu/item_rows.rs",
    "backend/cpu/negatives.rs",
    "backend/cpu/part_gradient.rs",
    "backend/cpu/rows.rs",
    "baseline/item_ridge.rs",
    "baseline/least_squares.rs",
    "baseline/pairwise/aobpr.rs",
    "baseline/pairwise/bpr.rs",
    "baseline/pairwise/mod.rs",
    "baseline/pairwise/pris.rs",
    "baseline/pairwise/step.rs",
    "baseline/pairwise/warp.rs",
    "eval/topk.rs",
    "index/codebook.rs",
    "index/kmeans.rs",
    "loss/negative_sum.rs",
    "loss/sampled.rs",
    "network/encoder.rs",
    "optim/compact.rs",
    "optim/halves.rs",
    "optim/mod.rs",
    "proposal/alias.rs",
    "proposal/cells.rs",
    "proposal/dns.rs",
    "proposal/logits.rs",
    "proposal/members.rs",
    "proposal/settle.rs",
    "proposal/systematic.rs",
];

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// The code of each file, without comments, by its path below `src`.
fn files() -> BTreeMap<String, String> {
    let (mut files, mut folders) = (BTreeMap::new(), vec![source()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(source()).unwrap().to_str().unwrap().to_string();
                files.insert(name, code(&fs::read_to_string(&path).unwrap()));
            }
        }
    }
    files
}

fn code(text: &str) -> String {
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// What is compiled outside tests.
fn without_tests() -> BTreeMap<String, String> {
    const MARK: &str = "#[cfg(test)]\n";
    let mut files = files();
    let test_modules: Vec<String> = files
        .values()
        .flat_map(|code| code.split(MARK).skip(1))
        .filter_map(|rest| Some(format!("{}.rs", rest.split_once("mod ")?.1.split_once(';')?.0)))
        .collect();
    files.retain(|name, _| !test_modules.iter().any(|module| name.rsplit('/').next() == Some(module)));
    // Tests stand at the end of their file.
    for code in files.values_mut() {
        for mark in ["mod tests {", "pub(crate) mod tests {"] {
            code.truncate(code.find(&format!("{MARK}{mark}")).unwrap_or(code.len()));
        }
    }
    files
}

/// The words of `code` after each `mark`.
fn words_after<'c>(code: &'c str, mark: &'c str) -> impl Iterator<Item = &'c str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(mark).filter_map(move |(at, _)| {
        let inside = code[..at].chars().next_back().is_some_and(is_word);
        let rest = &code[at + mark.len()..];
        (!inside).then(|| &rest[..rest.find(|c| !is_word(c)).unwrap_or(rest.len())])
    })
}

#[test]
fn unsafe_code_stands_only_where_it_is_listed() {
    let unsafe_code = |code: &str| words_after(code, "unsafe").any(str::is_empty);
    let found: Vec<String> =
        files().into_iter().filter(|(_, code)| unsafe_code(code)).map(|(name, _)| name).collect();
    assert_eq!(found, UNSAFE.map(|(name, _)| name));
}

#[test]
fn explicit_vectors_outside_math_stand_only_where_they_are_listed() {
    let found: Vec<String> = without_tests()
        .into_iter()
        .filter(|(name, code)| {
            !name.starts_with("math/") && (code.contains("fearless_simd") || code.contains("dispatch!"))
        })
        .map(|(name, _)| name)
        .collect();
    assert_eq!(found, SIMD);
}

#[test]
fn a_module_uses_only_modules_above_it() {
    let files = without_tests();
    let root = &files["lib.rs"];
    let modules: Vec<&str> =
        words_after(root, "mod ").filter(|name| root.contains(&format!("mod {name};"))).collect();
    assert!(modules.len() > 15, "{modules:?}");
    // What stands at the root under a short name is of the module that it comes from.
    let mut places: BTreeMap<&str, usize> =
        modules.iter().enumerate().map(|(place, &module)| (module, place)).collect();
    for line in root.lines().filter_map(|line| line.strip_prefix("pub use ")) {
        let (module, names) = line.split_once("::").unwrap();
        for name in names.split(|c: char| !c.is_alphanumeric()).filter(|name| !name.is_empty()) {
            places.entry(name).or_insert(modules.iter().position(|&other| other == module).unwrap());
        }
    }
    let mut wrong = Vec::new();
    for (name, code) in files.iter().filter(|(name, _)| *name != "lib.rs") {
        let own = name.split(['/', '.']).next().unwrap();
        for used in words_after(code, "crate::") {
            let place =
                places.get(used).unwrap_or_else(|| panic!("{name} uses `crate::{used}`: name it in full"));
            if *place > places[own] {
                wrong.push(format!("{name} uses {used}, which stands below {own}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The project's documents, with the folder that each one's links start from.
fn documents() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let docs = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = docs.filter(|path| path.extension().is_some_and(|e| e == "md")).collect();
    paths.extend(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|name| root.join(name)));
    paths.into_iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

#[test]
fn links_of_documents_lead_to_files() {
    let mut links = 0;
    for (path, text) in documents() {
        for (at, _) in text.match_indices("](") {
            let link = text[at + 2..].split(')').next().unwrap();
            let file = link.split('#').next().unwrap();
            if file.is_empty() || file.contains("://") {
                continue;
            }
            links += 1;
            assert!(path.parent().unwrap().join(file).exists(), "{}: {link} is not there", path.display());
        }
    }
    assert!(links > 50, "{links} links are too few to be all");
}

#[test]
fn tests_that_the_theorems_name_exist() {
    let documents = documents();
    let (_, text) = documents.iter().find(|(path, _)| path.ends_with("docs/theorems.md")).unwrap();
    let code: String = files().into_values().collect();
    // A test's name is a sentence.
    let is_test = |word: &&str| {
        word.matches('_').count() >= 3 && !word.contains(|c: char| !c.is_alphanumeric() && c != '_')
    };
    let named: Vec<&str> = text.split('`').skip(1).step_by(2).filter(is_test).collect();
    assert!(named.len() >= 10, "{named:?}");
    for name in named {
        assert!(code.contains(&format!("fn {name}(")), "there is no test {name}");
    }
}

/// The decimal numbers of a text, as they are written, with what they are worth.
fn decimals(text: &str) -> impl Iterator<Item = (&str, f64)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '_';
    let words = text.split(move |c| !is_part(c)).map(|word| word.trim_end_matches('.'));
    words.filter(|word| word.contains('.')).filter_map(|word| Some((word, word.parse().ok()?)))
}

#[test]
fn numbers_of_the_reproduction_are_those_of_its_results() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (mut measured, mut folders) = (Vec::new(), vec![root.join("benchmarks/results")]);
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let kind = path.extension().and_then(|extension| extension.to_str());
            match kind {
                _ if path.is_dir() => folders.push(path),
                Some("csv" | "md" | "json" | "jsonl") => {
                    let text = fs::read_to_string(&path).unwrap();
                    measured.extend(decimals(&text).map(|(_, value)| value));
                }
                _ => {}
            }
        }
    }
    let rounded = |digits: usize| -> BTreeSet<String> {
        measured.iter().map(|value| format!("{value:.digits$}").trim_start_matches('0').to_string()).collect()
    };
    let rounded: BTreeMap<usize, BTreeSet<String>> =
        (1..=4).map(|digits| (digits, rounded(digits))).collect();
    let text = fs::read_to_string(root.join("docs/reproduction.md")).unwrap();
    let mut checked = 0;
    for (word, _) in decimals(&text) {
        let digits = word.len() - word.find('.').unwrap() - 1;
        let Some(results) = rounded.get(&digits) else { continue };
        assert!(results.contains(word.trim_start_matches('0')), "{word} is in no committed result");
        checked += 1;
    }
    assert!(checked > 100, "{checked} numbers are too few to be all");
}
