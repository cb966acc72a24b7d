//! A page: what was measured, and which findings of the paper hold.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;

use crate::output::write;
use crate::plot::save;

/// What one table or figure gave.
#[derive(Debug)]
pub struct Page {
    /// The name of its files.
    pub id: &'static str,
    /// What it is.
    pub title: &'static str,
    /// How it was measured.
    pub method: String,
    /// What the page shows of the numbers.
    pub table: Table,
    /// All numbers.
    pub numbers: Table,
    /// The plot.
    pub plot: Option<String>,
    /// What the paper found, and whether it is so here.
    pub findings: Vec<Finding>,
}

/// A table of text.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// Names of the columns.
    pub header: Vec<String>,
    /// Rows of as many fields.
    pub rows: Vec<Vec<String>>,
}

/// A finding of the paper.
#[derive(Debug)]
pub struct Finding {
    /// What the paper says.
    pub claim: &'static str,
    /// Whether it is so here.
    pub verdict: Verdict,
    /// The figures.
    pub evidence: String,
}

/// Whether a finding holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// In all that was measured.
    Holds,
    /// In some of it.
    HoldsInPart,
    /// In none of it.
    DoesNotHold,
}

impl Verdict {
    /// By how many of the cases it holds.
    pub fn of(cases: impl IntoIterator<Item = bool>) -> Self {
        let (mut yes, mut no) = (0, 0);
        cases.into_iter().for_each(|case| if case { yes += 1 } else { no += 1 });
        match (yes, no) {
            (_, 0) => Self::Holds,
            (0, _) => Self::DoesNotHold,
            _ => Self::HoldsInPart,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::HoldsInPart => "holds in part",
            Self::DoesNotHold => "does not hold",
        }
    }
}

impl Table {
    /// An empty table.
    pub fn new(header: &[&str]) -> Self {
        Self { header: header.iter().map(ToString::to_string).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    pub fn push(&mut self, row: impl IntoIterator<Item = String>) {
        let row: Vec<String> = row.into_iter().collect();
        debug_assert_eq!(row.len(), self.header.len());
        self.rows.push(row);
    }

    fn markdown(&self) -> String {
        let mut text =
            format!("| {} |\n|---{}|\n", self.header.join(" | "), "|---:".repeat(self.header.len() - 1));
        for row in &self.rows {
            let _ = writeln!(text, "| {} |", row.join(" | "));
        }
        text
    }

    fn csv(&self) -> String {
        let mut text = String::new();
        for row in std::iter::once(&self.header).chain(&self.rows) {
            let fields: Vec<String> = row
                .iter()
                .map(|field| match field.contains([',', '"']) {
                    true => format!("\"{}\"", field.replace('"', "\"\"")),
                    false => field.clone(),
                })
                .collect();
            let _ = writeln!(text, "{}", fields.join(","));
        }
        text
    }
}

impl Page {
    /// Writes the page, its numbers and its plot into `directory`.
    ///
    /// # Errors
    /// What the disk refuses.
    pub fn write(&self, directory: &Path) -> Result<()> {
        let path = directory.join(self.id);
        if let Some(plot) = &self.plot {
            save(plot, &path)?;
        }
        write(&path.with_extension("csv"), self.numbers.csv().as_bytes())?;
        write(&path.with_extension("md"), self.markdown().as_bytes())
    }

    fn markdown(&self) -> String {
        let mut text = format!("# {}\n\n{}\n\n", self.title, self.method);
        if self.plot.is_some() {
            let _ = writeln!(text, "![{}]({}.svg)\n", self.title, self.id);
        }
        text.push_str(&self.table.markdown());
        text.push_str("\n## What the paper found\n\n");
        for Finding { claim, verdict, evidence } in &self.findings {
            let _ = writeln!(text, "- **{}**: {claim} {evidence}", verdict.text());
        }
        let _ = writeln!(text, "\nAll numbers: [{0}.csv]({0}.csv).", self.id);
        text
    }

    /// What the terminal shows.
    pub fn terminal(&self) -> String {
        let mut text = format!("{}: {}\n", self.id, self.title);
        for Finding { claim, verdict, evidence } in &self.findings {
            let _ = writeln!(text, "  [{}] {claim} {evidence}", verdict.text());
        }
        text
    }
}

/// Writes a page that leads to all others.
///
/// # Errors
/// What the disk refuses.
pub fn write_index(directory: &Path, pages: &[Page]) -> Result<()> {
    let mut text = String::from("# The paper, measured again\n\n| | finding | here |\n|---|---|---|\n");
    for page in pages {
        for finding in &page.findings {
            let _ = writeln!(
                text,
                "| [{0}]({0}.md) | {1} | {2} |",
                page.id,
                finding.claim,
                finding.verdict.text()
            );
        }
    }
    write(&directory.join("index.md"), text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_follow_the_cases() {
        assert_eq!(Verdict::of([true, true]), Verdict::Holds);
        assert_eq!(Verdict::of([true, false]), Verdict::HoldsInPart);
        assert_eq!(Verdict::of([false]), Verdict::DoesNotHold);
    }

    #[test]
    fn a_page_leaves_its_files() {
        let directory = tempfile::tempdir().unwrap();
        let mut table = Table::new(&["name", "value"]);
        table.push(["a, b".to_string(), "1".to_string()]);
        let page = Page {
            id: "table1",
            title: "Table 1",
            method: "Counted.".into(),
            numbers: table.clone(),
            table,
            plot: None,
            findings: vec![Finding {
                claim: "It is so.",
                verdict: Verdict::Holds,
                evidence: "1 = 1.".into(),
            }],
        };
        page.write(directory.path()).unwrap();
        let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
        assert_eq!(read("table1.csv"), "name,value\n\"a, b\",1\n");
        assert!(read("table1.md").contains("- **holds**: It is so. 1 = 1."));
        write_index(directory.path(), &[page]).unwrap();
        assert!(read("index.md").contains("| [table1](table1.md) | It is so. | holds |"));
    }
}
