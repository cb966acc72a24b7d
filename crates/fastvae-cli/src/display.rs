//! Numbers and tables as people read them.

use std::fmt;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

/// `n` with a comma every three digits.
pub fn thousands(n: impl TryInto<u64>) -> String {
    let digits = n.try_into().unwrap_or(u64::MAX).to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A size in the unit that suits it; powers of 1000.
pub fn bytes(n: u64) -> String {
    let units = ["bytes", "kB", "MB", "GB", "TB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    match unit {
        0 => format!("{n} {}", units[0]),
        _ if value < 9.95 => format!("{value:.1} {}", units[unit]),
        _ => format!("{value:.0} {}", units[unit]),
    }
}

/// A time in the unit that suits it.
pub fn seconds(value: f64) -> String {
    match value {
        v if v < 0.0995 => format!("{:.1} ms", v * 1e3),
        v if v < 9.95 => format!("{v:.2} s"),
        v if v < 120.0 => format!("{v:.0} s"),
        v if v < 7200.0 => format!("{:.0} min", v / 60.0),
        v => format!("{:.1} h", v / 3600.0),
    }
}

/// A mean over folds or trials and the deviation between them.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// Sample deviation; None for a single value.
    pub deviation: Option<f64>,
}

impl Spread {
    /// Of `values`.
    pub fn of(values: &[f64]) -> Self {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n.max(1.0);
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Self { mean, deviation: (values.len() > 1).then(|| (squares / (n - 1.0)).sqrt()) }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.deviation {
            Some(deviation) => write!(f, "{:.4} ± {deviation:.4}", self.mean),
            None => write!(f, "{:.4}", self.mean),
        }
    }
}

/// An empty table without lines, with `header`.
pub fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = plain();
    table.set_header(header);
    table
}

/// An empty table without lines or header.
pub fn plain() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table
}

/// `table` as text, with the columns in `right` aligned there, and no blanks at the ends of lines.
pub fn text(mut table: Table, right: impl IntoIterator<Item = usize>) -> String {
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    for at in right {
        if let Some(column) = table.column_mut(at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut text = String::new();
    for line in table.to_string().lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(thousands(7usize), "7");
        assert_eq!(thousands(1_027_464u64), "1,027,464");
        assert_eq!(bytes(999), "999 bytes");
        assert_eq!(bytes(1_500), "1.5 kB");
        assert_eq!(bytes(999_900), "1.0 MB");
        assert_eq!(bytes(2_784_000_000), "2.8 GB");
        assert_eq!(seconds(0.0123), "12.3 ms");
        assert_eq!(seconds(2.345), "2.35 s");
        assert_eq!(seconds(600.0), "10 min");
    }

    #[test]
    fn a_table_has_no_blanks_at_the_ends_of_lines() {
        let mut numbers = table(["name", "n"]);
        numbers.add_row(["a", "5"]);
        numbers.add_row(["bcd", "12"]);
        assert_eq!(text(numbers, [1]), "name   n\na      5\nbcd   12\n");
    }
}
