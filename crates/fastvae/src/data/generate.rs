//! [`Generator`]: synthetic interactions with tastes that a model can find, at any size.
//!
//! Every item belongs to a genre and has a rank in it; every user likes one to three genres and picks items by
//! Zipf's law within them, with a little noise. Nothing is stored: genre, rank, title and history are functions
//! of (seed, item) and (seed, user), so ten million items cost as much memory as ten.

use std::sync::Arc;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::data::titles::Titles;
use crate::data::vocabulary::{ADJECTIVES, GENRES, NOUNS};
use crate::data::{IdMap, Interactions, ItemId, UserId};
use crate::error::{Error, Result};
use crate::math::random::{Purpose, Stream};

/// The size and shape of synthetic data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GenerateOptions {
    /// Number of users.
    pub users: usize,
    /// Number of items.
    pub items: usize,
    /// Number of interactions, met within a few percent.
    pub interactions: usize,
    /// Number of genres.
    pub genres: usize,
    /// Exponent of Zipf's law within a genre: 0 is even, 1 is steep.
    pub zipf: f64,
    /// Share of the interactions outside of the user's genres.
    pub noise: f64,
    /// Seed of everything.
    pub seed: u64,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self {
            users: 10_000,
            items: 5_000,
            interactions: 400_000,
            genres: 24,
            zipf: 0.8,
            noise: 0.1,
            seed: 1,
        }
    }
}

/// Spread of the logarithm of the history lengths.
const HISTORY_SIGMA: f64 = 0.6;
/// Histories are at least this long where the mean allows.
const MIN_HISTORY: f64 = 5.0;
/// Histories that are computed at a time.
const BLOCK: usize = 4096;
/// No user has more than this share of the catalogue.
const MAX_CATALOGUE_SHARE: f64 = 0.5;

/// A synthetic data set, computed piece by piece on demand.
#[derive(Debug, Clone)]
pub struct Generator {
    options: GenerateOptions,
    /// Scatters genres and ranks over the identifiers.
    places: Permutation,
}

/// The catalogue of `options`, all of it in memory; identifiers are the positions.
///
/// # Errors
/// [`Error::Config`] for options that cannot work.
pub fn generate(options: GenerateOptions) -> Result<Interactions> {
    Generator::new(options)?.interactions()
}

impl Generator {
    /// Checks `options`; costs nothing else.
    ///
    /// # Errors
    /// [`Error::Config`] for sizes that cannot be met.
    pub fn new(options: GenerateOptions) -> Result<Self> {
        let refuse = |key: &str, problem: String, remedy: &str| Err(Error::config(key, problem, remedy));
        let GenerateOptions { users, items, interactions, genres, zipf, noise, seed } = options;
        let limit = u32::MAX as usize - 1;
        if users == 0 || users > limit {
            return refuse("users", format!("{users} is not from 1 to {limit}"), "give another --users");
        }
        if items < 2 || items > limit {
            return refuse("items", format!("{items} is not from 2 to {limit}"), "give another --items");
        }
        if genres == 0 || genres > items {
            return refuse(
                "genres",
                format!("{genres} is not from 1 to {items}"),
                "give fewer genres than items",
            );
        }
        if interactions < users || interactions as f64 > MAX_CATALOGUE_SHARE * items as f64 * users as f64 {
            return refuse(
                "interactions",
                format!("{interactions} do not spread over {users} users and {items} items"),
                "give at least one per user, and at most half of the catalogue",
            );
        }
        if !(0.0..=3.0).contains(&zipf) || !(0.0..=1.0).contains(&noise) {
            return refuse(
                "zipf",
                format!("exponent {zipf} or noise {noise} is out of range"),
                "use 0.8 and 0.1",
            );
        }
        Ok(Self { places: Permutation::new(items as u64, seed), options })
    }

    /// The options it was made with.
    pub fn options(&self) -> &GenerateOptions {
        &self.options
    }

    /// Replaces `items` by the items of `user`, ascending and without repetition.
    ///
    /// # Panics
    /// If `user` is not below the number of users.
    pub fn history(&self, user: UserId, items: &mut Vec<ItemId>) {
        let options = &self.options;
        assert!((user as usize) < options.users, "user {user} of {}", options.users);
        let mut stream = Stream::new(options.seed, Purpose::Generate, 0, user);
        let tastes = self.tastes(&mut stream);
        let n = self.history_length(&mut stream);
        items.clear();
        // Popular ranks run out for a keen user of a small genre, so after some misses any item will do.
        let mut misses = 0;
        while items.len() < n {
            let genre = if misses > 4 * n || stream.uniform() < options.noise {
                stream.below(options.genres as u64)
            } else {
                tastes.draw(&mut stream)
            };
            let exponent = if misses > 8 * n { 0.0 } else { options.zipf };
            let item = self.item(genre, zipf_rank(self.genre_size(genre), exponent, stream.uniform()));
            match items.binary_search(&item) {
                Ok(_) => misses += 1,
                Err(at) => items.insert(at, item),
            }
        }
    }

    /// Calls `each` with every user and its items, in order; memory follows a few thousand histories, which are
    /// computed on all threads of the current pool.
    ///
    /// # Errors
    /// The first error of `each`.
    pub fn for_each_user(&self, mut each: impl FnMut(UserId, &[ItemId]) -> Result<()>) -> Result<()> {
        let mut histories = vec![Vec::new(); BLOCK.min(self.options.users)];
        for start in (0..self.options.users).step_by(BLOCK) {
            let n = BLOCK.min(self.options.users - start);
            histories[..n].par_iter_mut().enumerate().for_each(|(at, items)| {
                self.history((start + at) as UserId, items);
            });
            for (at, items) in histories[..n].iter().enumerate() {
                each((start + at) as UserId, items)?;
            }
        }
        Ok(())
    }

    /// All of it in memory; identifiers are the positions.
    ///
    /// # Errors
    /// None in practice: the rows are sorted as they should be.
    pub fn interactions(&self) -> Result<Interactions> {
        let (mut offsets, mut all) = (vec![0], Vec::with_capacity(self.options.interactions));
        self.for_each_user(|_, items| {
            all.extend_from_slice(items);
            offsets.push(all.len());
            Ok(())
        })?;
        let users = Arc::new(IdMap::range(self.options.users));
        Interactions::from_parts(offsets, all, None, None, users, Arc::new(IdMap::range(self.options.items)))
    }

    /// The genre of `item`, from 0.
    ///
    /// # Panics
    /// If `item` is not below the number of items.
    pub fn genre(&self, item: ItemId) -> usize {
        (self.place(item) % self.options.genres as u64) as usize
    }

    /// A title that shows the genre, such as `Midnight Harbor (Mystery)`; no two items share one.
    ///
    /// # Panics
    /// If `item` is not below the number of items.
    pub fn title(&self, item: ItemId) -> String {
        let (genre, rank) = (self.genre(item), self.place(item) / self.options.genres as u64);
        let n_pairs = (ADJECTIVES.len() * NOUNS.len()) as u64;
        // Each genre and volume walks through the pairs of words in an order of its own.
        let volume = rank / n_pairs;
        let order = Permutation::new(n_pairs, self.options.seed ^ ((genre as u64) << 32 | volume));
        let pair = order.forward(rank % n_pairs) as usize;
        let (adjective, noun) = (ADJECTIVES[pair % ADJECTIVES.len()], NOUNS[pair / ADJECTIVES.len()]);
        let number = if volume > 0 { format!(" {}", volume + 1) } else { String::new() };
        format!("{adjective} {noun}{number} ({})", genre_name(genre))
    }

    /// The titles of all items.
    pub fn titles(&self) -> Titles {
        Titles::new((0..self.options.items as ItemId).map(|item| self.title(item)))
    }

    fn place(&self, item: ItemId) -> u64 {
        assert!((item as usize) < self.options.items, "item {item} of {}", self.options.items);
        self.places.forward(u64::from(item))
    }

    fn item(&self, genre: u64, rank: u64) -> ItemId {
        self.places.backward(rank * self.options.genres as u64 + genre) as ItemId
    }

    /// How many items have the remainder `genre`.
    fn genre_size(&self, genre: u64) -> u64 {
        (self.options.items as u64 - genre).div_ceil(self.options.genres as u64)
    }

    fn tastes(&self, stream: &mut Stream) -> Tastes {
        let n = 1 + stream.below(3) as usize;
        let mut genres = [0; 3];
        for genre in &mut genres[..n] {
            *genre = stream.below(self.options.genres as u64);
        }
        Tastes { genres, n }
    }

    fn history_length(&self, stream: &mut Stream) -> usize {
        let options = &self.options;
        let mean = options.interactions as f64 / options.users as f64;
        let least = MIN_HISTORY.min(mean).floor().max(1.0);
        let most = (MAX_CATALOGUE_SHARE * options.items as f64).max(least).floor();
        // A log-normal with this mean, so that the total comes out right.
        let log = mean.ln() - HISTORY_SIGMA * HISTORY_SIGMA / 2.0 + HISTORY_SIGMA * stream.normal();
        log.exp().round().clamp(least, most) as usize
    }
}

/// The genres a user likes, the first one most.
struct Tastes {
    genres: [u64; 3],
    n: usize,
}

impl Tastes {
    fn draw(&self, stream: &mut Stream) -> u64 {
        // The smaller of two draws: weights 3 to 1, or 5 to 3 to 1.
        let draw = |stream: &mut Stream| stream.below(self.n as u64) as usize;
        self.genres[draw(stream).min(draw(stream))]
    }
}

fn genre_name(genre: usize) -> String {
    let name = GENRES[genre % GENRES.len()];
    if genre < GENRES.len() { name.to_string() } else { format!("{name} {}", genre / GENRES.len() + 1) }
}

/// The rank, from 0, at `quantile` of the density x^-exponent on [1, n + 1).
fn zipf_rank(n: u64, exponent: f64, quantile: f64) -> u64 {
    let end = n as f64 + 1.0;
    let x = if (exponent - 1.0).abs() < 1e-9 {
        end.powf(quantile)
    } else {
        let power = 1.0 - exponent;
        (1.0 + quantile * (end.powf(power) - 1.0)).powf(1.0 / power)
    };
    (x as u64).clamp(1, n) - 1
}

/// A bijection of `0..n` without a table: a Feistel network on the next even power of two, walked until it lands
/// inside.
#[derive(Debug, Clone)]
struct Permutation {
    n: u64,
    half: u32,
    keys: [u64; 4],
}

impl Permutation {
    fn new(n: u64, seed: u64) -> Self {
        let bits = (64 - n.saturating_sub(1).leading_zeros()).max(2);
        let mut stream = Stream::with_part(seed, Purpose::Generate, 1, 0, 0);
        Self { n, half: bits.div_ceil(2), keys: std::array::from_fn(|_| stream.next_u64()) }
    }

    fn forward(&self, mut value: u64) -> u64 {
        loop {
            let (mut left, mut right) = (value >> self.half, value & self.mask());
            for key in self.keys {
                (left, right) = (right, left ^ self.mix(right, key));
            }
            value = left << self.half | right;
            if value < self.n {
                return value;
            }
        }
    }

    fn backward(&self, mut value: u64) -> u64 {
        loop {
            let (mut left, mut right) = (value >> self.half, value & self.mask());
            for key in self.keys.iter().rev() {
                (left, right) = (right ^ self.mix(left, *key), left);
            }
            value = left << self.half | right;
            if value < self.n {
                return value;
            }
        }
    }

    fn mask(&self) -> u64 {
        (1 << self.half) - 1
    }

    /// The finaliser of SplitMix64, cut to half a word.
    fn mix(&self, value: u64, key: u64) -> u64 {
        let mut x = value.wrapping_add(key);
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (x ^ (x >> 31)) & self.mask()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_permutation_hits_everything_once_and_goes_back() {
        for n in [1, 2, 3, 100, 1000, 4097] {
            let order = Permutation::new(n, 5);
            let images: HashSet<u64> = (0..n).map(|value| order.forward(value)).collect();
            assert_eq!(images.len() as u64, n);
            assert!((0..n).all(|value| order.backward(order.forward(value)) == value));
        }
    }

    #[test]
    fn sizes_come_out_as_asked() {
        let options = GenerateOptions::default();
        let data = Generator::new(options.clone()).unwrap().interactions().unwrap();
        assert_eq!((data.n_users(), data.n_items()), (options.users, options.items));
        let ratio = data.n_interactions() as f64 / options.interactions as f64;
        // The mean of 10,000 log-normals with sigma 0.6 has a relative standard error of 0.7 %.
        assert!((ratio - 1.0).abs() < 0.03, "{ratio}");
        assert!(data.offsets().windows(2).all(|span| span[1] - span[0] >= 5));
    }

    #[test]
    fn a_history_depends_on_seed_and_user_alone() {
        let history = |users, seed, user| {
            let options =
                GenerateOptions { users, interactions: users * 40, seed, ..GenerateOptions::default() };
            let mut items = Vec::new();
            Generator::new(options).unwrap().history(user, &mut items);
            items
        };
        assert_eq!(history(100, 1, 7), history(50, 1, 7));
        assert_ne!(history(100, 1, 7), history(100, 2, 7));
        assert_ne!(history(100, 1, 7), history(100, 1, 8));
    }

    #[test]
    fn users_keep_to_few_genres() {
        let generator = Generator::new(GenerateOptions::default()).unwrap();
        let mut items = Vec::new();
        let mut share = 0.0;
        for user in 0..200 {
            generator.history(user, &mut items);
            let mut counts = [0; 24];
            for &item in &items {
                counts[generator.genre(item)] += 1;
            }
            counts.sort_unstable();
            share += f64::from(counts[21..].iter().sum::<i32>()) / items.len() as f64;
        }
        // Noise of 10 %, a little more where a genre runs out; even tastes would give 3 / 24.
        assert!(share / 200.0 > 0.85, "{share}");
    }

    #[test]
    fn titles_are_unique_and_show_the_genre() {
        let options = GenerateOptions { items: 300_000, ..GenerateOptions::default() };
        let generator = Generator::new(options).unwrap();
        let titles: HashSet<String> = (0..300_000).map(|item| generator.title(item)).collect();
        assert_eq!(titles.len(), 300_000);
        let item = 17;
        assert!(generator.title(item).contains(&format!("({})", GENRES[generator.genre(item)])));
    }

    #[test]
    fn tiny_catalogues_end_too() {
        let options = GenerateOptions {
            users: 3,
            items: 10,
            interactions: 15,
            genres: 10,
            ..GenerateOptions::default()
        };
        let data = Generator::new(options).unwrap().interactions().unwrap();
        assert_eq!(data.n_interactions(), 15);
    }

    #[test]
    fn impossible_sizes_are_refused() {
        let refused = |change: fn(&mut GenerateOptions)| {
            let mut options = GenerateOptions::default();
            change(&mut options);
            Generator::new(options).unwrap_err().to_string()
        };
        assert!(refused(|o| o.users = 0).contains("--users"));
        assert!(refused(|o| o.items = 1).contains("--items"));
        assert!(refused(|o| o.genres = 0).contains("genres"));
        assert!(refused(|o| o.interactions = 10).contains("at least one per user"));
        assert!(refused(|o| o.interactions = usize::MAX).contains("half of the catalogue"));
    }
}
