//! [`Tables`]: one of something for each learned table. The tables are listed here and nowhere else.
//!
//! Whatever holds for all of them (their random start, moments, copies, files, checkpoints, memory, places on a device)
//! goes through [`Tables::map`], [`Tables::zip`] and [`IntoIterator`], so that a new table is a field, a line in each
//! list below and its [`Shape`]; what is left to write is what a step does with it.

use crate::config::{Config, MomentKind};
use crate::math::Matrix;

/// One `T` for each learned table of a network.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Tables<T> {
    /// Encoder rows E, `n_items x hidden`, or `n_items x encoder_rank` where a map follows.
    pub encoder: T,
    /// From a sum of encoder rows to the hidden layer, `encoder_rank x hidden`, where the encoder is factored.
    pub encoder_map: Option<T>,
    /// Bias of the hidden layer b0, `1 x hidden`.
    pub hidden_bias: T,
    /// Dense layer W to mean and log-variance, `hidden x (2 latent)`: columns `0..latent` give the mean.
    pub head: T,
    /// Bias of the dense layer b1, `1 x (2 latent)`.
    pub head_bias: T,
    /// Item vectors q, `n_items x latent`.
    pub items: T,
    /// Item biases, `1 x n_items`, where the model has them.
    pub item_bias: Option<T>,
}

/// How many there can be.
const N: usize = 7;
/// Their names in files, in the order of [`Tables::into_array`].
const NAMES: [&str; N] = ["encoder", "encoder_map", "hidden_bias", "head", "head_bias", "items", "item_bias"];

impl<T> Tables<T> {
    fn into_array(self) -> [Option<T>; N] {
        let Self { encoder, encoder_map, hidden_bias, head, head_bias, items, item_bias } = self;
        [Some(encoder), encoder_map, Some(hidden_bias), Some(head), Some(head_bias), Some(items), item_bias]
    }

    fn from_array(
        [encoder, encoder_map, hidden_bias, head, head_bias, items, item_bias]: [Option<T>; N],
    ) -> Self {
        let present = |table: Option<T>| table.expect("the tables that every network has were all given");
        Self {
            encoder: present(encoder),
            encoder_map,
            hidden_bias: present(hidden_bias),
            head: present(head),
            head_bias: present(head_bias),
            items: present(items),
            item_bias,
        }
    }

    /// The same tables with what `change` makes of each, given its name.
    pub fn map<U>(self, mut change: impl FnMut(&'static str, T) -> U) -> Tables<U> {
        let mut names = NAMES.into_iter();
        Tables::from_array(self.into_array().map(|table| {
            let name = names.next().expect("as many names as tables");
            table.map(|table| change(name, table))
        }))
    }

    /// As [`Tables::map`], until `change` fails.
    ///
    /// # Errors
    /// The first error of `change`.
    pub fn try_map<U, E>(
        self,
        mut change: impl FnMut(&'static str, T) -> Result<U, E>,
    ) -> Result<Tables<U>, E> {
        let mut failed = None;
        let changed = self.map(|name, table| match failed {
            Some(_) => None,
            None => change(name, table).map_err(|error| failed = Some(error)).ok(),
        });
        match failed {
            Some(error) => Err(error),
            None => Ok(changed.map(|_, table| table.expect("nothing failed"))),
        }
    }

    /// Each with its partner in `others`.
    ///
    /// # Panics
    /// If one of the two has a table that the other has not.
    pub fn zip<U>(self, others: Tables<U>) -> Tables<(T, U)> {
        let mut others = others.into_array().into_iter();
        Tables::from_array(self.into_array().map(|table| {
            match (table, others.next().expect("as many as here")) {
                (Some(table), Some(other)) => Some((table, other)),
                (None, None) => None,
                _ => panic!("two networks with other tables"),
            }
        }))
    }

    /// All of them, borrowed.
    pub fn as_ref(&self) -> Tables<&T> {
        let Self { encoder, encoder_map, hidden_bias, head, head_bias, items, item_bias } = self;
        let (encoder_map, item_bias) = (encoder_map.as_ref(), item_bias.as_ref());
        Tables { encoder, encoder_map, hidden_bias, head, head_bias, items, item_bias }
    }

    /// All of them, borrowed to be changed.
    pub fn as_mut(&mut self) -> Tables<&mut T> {
        let Self { encoder, encoder_map, hidden_bias, head, head_bias, items, item_bias } = self;
        let (encoder_map, item_bias) = (encoder_map.as_mut(), item_bias.as_mut());
        Tables { encoder, encoder_map, hidden_bias, head, head_bias, items, item_bias }
    }
}

impl<T> IntoIterator for Tables<T> {
    type Item = (&'static str, T);
    type IntoIter = std::iter::FilterMap<
        std::iter::Zip<std::array::IntoIter<&'static str, N>, std::array::IntoIter<Option<T>, N>>,
        fn((&'static str, Option<T>)) -> Option<(&'static str, T)>,
    >;

    /// Those that there are, with their names.
    fn into_iter(self) -> Self::IntoIter {
        NAMES.into_iter().zip(self.into_array()).filter_map(|(name, table)| Some((name, table?)))
    }
}

/// How the tables of two networks become that of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Joint {
    /// Columns beside columns.
    Beside,
    /// The same, each at half its size: inner products become means.
    Halved,
    /// The second below and to the right of the first.
    Diagonal,
    /// As a diagonal, or beside one another where they are biases, with the first halves of the columns of both, then the
    /// second halves: means, then log-variances.
    Halves,
    /// The mean.
    Mean,
}

/// The form of a learned table, before there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Rows.
    pub rows: usize,
    /// Columns, without padding.
    pub cols: usize,
    /// Whether it has a row for each item of the catalogue.
    pub of_items: bool,
    /// What is kept of its gradients.
    pub moments: MomentKind,
    /// Which stream of random numbers it starts from; none for biases, which start at zero.
    pub stream: Option<u16>,
    /// How it is joined with that of another network, where two become one.
    pub joint: Joint,
}

impl Shape {
    fn of_items(n_items: usize, cols: usize, moments: MomentKind, stream: u16) -> Self {
        Self { rows: n_items, cols, of_items: true, moments, stream: Some(stream), joint: Joint::Beside }
    }

    fn layer(rows: usize, cols: usize, stream: u16) -> Self {
        let moments = MomentKind::Full;
        Self { rows, cols, of_items: false, moments, stream: Some(stream), joint: Joint::Diagonal }
    }

    fn bias(cols: usize) -> Self {
        let moments = MomentKind::Full;
        Self { rows: 1, cols, of_items: false, moments, stream: None, joint: Joint::Beside }
    }

    fn joined(self, joint: Joint) -> Self {
        Self { joint, ..self }
    }

    /// Numbers in it.
    pub fn len(&self) -> usize {
        self.rows * self.cols
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of such a table in memory.
    pub fn bytes(&self) -> u64 {
        Matrix::bytes_of(self.rows, self.cols)
    }

    /// Bytes of such a table on disk, where rows have no padding.
    pub fn stored_bytes(&self) -> u64 {
        (self.len() * size_of::<f32>()) as u64
    }

    /// Length of each axis in files: biases have one.
    pub fn axes(&self) -> Vec<usize> {
        if self.stream.is_none() { vec![self.cols] } else { vec![self.rows, self.cols] }
    }
}

impl Tables<Shape> {
    /// The tables of a network of these settings over a catalogue of `n_items`.
    pub fn of(config: &Config, n_items: usize) -> Self {
        let (hidden, latent, rank) = (config.hidden, config.latent, config.encoder_rank);
        Self {
            encoder: Shape::of_items(n_items, config.encoder_columns(), config.moments, 0),
            encoder_map: (rank > 0).then(|| Shape::layer(rank, hidden, 3)),
            hidden_bias: Shape::bias(hidden),
            head: Shape::layer(hidden, 2 * latent, 1).joined(Joint::Halves),
            head_bias: Shape::bias(2 * latent).joined(Joint::Halves),
            items: Shape::of_items(n_items, latent, config.item_moments(), 2).joined(Joint::Halved),
            item_bias: config.item_bias.then(|| Shape::bias(n_items).joined(Joint::Mean)),
        }
    }

    /// Learned values in all.
    pub fn n_parameters(&self) -> usize {
        self.into_iter().map(|(_, shape)| shape.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shapes(item_bias: bool) -> Tables<Shape> {
        let config = Config { hidden: 6, latent: 2, encoder_rank: 3, item_bias, ..Config::default() };
        Tables::of(&config, 10)
    }

    #[test]
    fn every_table_is_listed_once_and_keeps_its_name_and_place() {
        let names: Vec<&str> = shapes(true).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, NAMES);
        let named = shapes(true).map(|name, _| name);
        assert_eq!(
            (named.encoder, named.item_bias, named.head_bias),
            ("encoder", Some("item_bias"), "head_bias")
        );
        assert_eq!(named.as_ref().map(|_, name| *name), named);
        for (name, (shape, same)) in shapes(true).zip(shapes(true)) {
            assert_eq!(shape, same, "{name}");
        }
        assert_eq!(shapes(false).into_iter().count(), N - 1);
        assert_eq!(shapes(true).n_parameters(), 10 * 3 + 3 * 6 + 6 + 6 * 4 + 4 + 10 * 2 + 10);
    }

    #[test]
    fn the_first_failure_ends_a_map() {
        let mut asked = Vec::new();
        let result = shapes(true).try_map(|name, _| {
            asked.push(name);
            if name == "hidden_bias" { Err(name) } else { Ok(()) }
        });
        assert_eq!(result.unwrap_err(), "hidden_bias");
        assert_eq!(asked, NAMES[..3]);
    }

    #[test]
    #[should_panic(expected = "other tables")]
    fn networks_with_other_tables_have_no_pairs() {
        let _ = shapes(true).zip(shapes(false));
    }
}
