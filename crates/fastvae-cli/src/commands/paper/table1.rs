//! Table 1: statistics of the datasets.

use anyhow::Result;
use fastvae::data::Statistics;

use super::datasets::DATASETS;
use super::page::{Finding, Page, Table, Verdict};
use super::session::Session;
use crate::display::thousands;
use crate::failure::usage;

/// The page.
///
/// # Errors
/// An error of usage where none of the datasets is there; what reading reports.
pub fn page(session: &Session) -> Result<Page> {
    let header = ["", "users", "items", "interactions", "sparsity", "in the paper"];
    let (mut table, mut numbers) = (
        Table::new(&header),
        Table::new(&[
            "dataset",
            "users",
            "items",
            "interactions",
            "sparsity",
            "published_users",
            "published_items",
            "published_interactions",
        ]),
    );
    let (mut same, mut evidence, mut absent) = (Vec::new(), Vec::new(), Vec::new());
    for dataset in DATASETS {
        // Read each time: this is a matter of a second, and the file may have changed.
        let statistics = match dataset.whole(&session.data)? {
            Some(data) => Statistics::of(&data),
            None => {
                absent.push(dataset.title);
                continue;
            }
        };
        let found = [statistics.users, statistics.items, statistics.interactions];
        let published = dataset.published.map(thousands).join(" / ");
        let sparsity = format!("{:.4} %", 100.0 * statistics.sparsity);
        let fields = found.map(thousands).into_iter().chain([sparsity, published]);
        table.push(std::iter::once(dataset.title.to_string()).chain(fields));
        let fields = found.map(|n| n.to_string()).into_iter();
        let fields = fields.chain([statistics.sparsity.to_string()]);
        let fields = fields.chain(dataset.published.map(|n| n.to_string()));
        numbers.push(std::iter::once(dataset.name.to_string()).chain(fields));
        same.push(found == dataset.published);
        evidence.push(format!(
            "{}: {}",
            dataset.title,
            if found == dataset.published { "exactly" } else { "not" }
        ));
    }
    if same.is_empty() {
        return Err(usage(format!(
            "none of {} is in {}; give the directory of gowalla.mat or ml10m.mat with --data",
            DATASETS.map(|dataset| dataset.name).join(", "),
            session.data.display()
        )));
    }
    let missing = match absent.as_slice() {
        [] => String::new(),
        absent => format!(" Not at hand: {}.", absent.join(", ")),
    };
    Ok(Page {
        id: "table1",
        title: "Table 1: statistics of the datasets",
        method: format!("Users and items of the 10-core.{missing}"),
        table,
        numbers,
        plot: None,
        findings: vec![Finding {
            claim: "The datasets have the stated users, items and interactions.",
            verdict: Verdict::of(same),
            evidence: format!("{}.", evidence.join("; ")),
        }],
    })
}
