//! Random numbers by address: Philox4x32-10 (Salmon et al., 2011).
//!
//! A number is a pure function of (seed, purpose, epoch, entity, index). Nothing is consumed, so the result of
//! a run does not depend on the number of threads, on the order of work, or on where it was interrupted, and a
//! GPU draws the same numbers as the CPU.

use std::ops::{BitXor, Mul, Shr};

use fearless_simd::dispatch;

use crate::math::simd;

/// What a stream is for; two purposes never share numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Purpose {
    /// Initial values of the parameters.
    Initialise = 1,
    /// Order of the users in an epoch.
    Shuffle = 2,
    /// Which input items are dropped.
    Dropout = 3,
    /// The noise of the latent draw.
    Latent = 4,
    /// Which negatives are drawn.
    Negatives = 5,
    /// Seeds of the codebooks.
    KMeans = 6,
    /// Train/test splits.
    Split = 7,
    /// The validation part.
    Validation = 8,
    /// Generated data.
    Generate = 9,
    /// Samples of users for diagnostics.
    Diagnostics = 10,
    /// Lists drawn at a temperature.
    Recommend = 11,
    /// Which items of a long history are paired.
    Thin = 12,
}

const MULTIPLIER: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// One Philox4x32-10 block.
#[inline(always)]
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        let a = u64::from(MULTIPLIER[0]) * u64::from(counter[0]);
        let b = u64::from(MULTIPLIER[1]) * u64::from(counter[2]);
        counter = [
            (b >> 32) as u32 ^ counter[1] ^ key[0],
            b as u32,
            (a >> 32) as u32 ^ counter[3] ^ key[1],
            a as u32,
        ];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

/// A number that looks like any other, one for each word: the finaliser of MurmurHash3 (Appleby, 2011). Of a word that
/// is random, it is random.
#[inline(always)]
pub(crate) fn mix(mut word: u32) -> u32 {
    word = (word ^ (word >> 16)).wrapping_mul(0x85EB_CA6B);
    word = (word ^ (word >> 13)).wrapping_mul(0xC2B2_AE35);
    word ^ (word >> 16)
}

/// As [`mix`], of a vector of words.
#[inline(always)]
pub(crate) fn mix_in<V>(mut words: V) -> V
where
    V: Copy + BitXor<Output = V> + Shr<u32, Output = V> + Mul<u32, Output = V>,
{
    words = (words ^ (words >> 16)) * 0x85EB_CA6B;
    words = (words ^ (words >> 13)) * 0xC2B2_AE35;
    words ^ (words >> 16)
}

/// The random numbers of one address, indexed from 0.
///
/// Also an iterator-like source through [`Stream::next_word`] for code that draws a data-dependent count.
#[derive(Debug, Clone)]
pub struct Stream {
    key: [u32; 2],
    /// Counter words 1 to 3; word 0 is the block index.
    address: [u32; 3],
    next: u32,
    block: [u32; 4],
}

impl Stream {
    /// Words that [`Stream::fill`] makes at once; a shorter rest is made four by four.
    pub const RUN: usize = 64;

    /// The stream of (`seed`, `purpose`, `epoch`, `entity`); `entity` is a user, an item, a row.
    pub fn new(seed: u64, purpose: Purpose, epoch: u32, entity: u32) -> Self {
        Self::with_part(seed, purpose, 0, epoch, entity)
    }

    /// As [`Stream::new`], with `part` to tell apart several streams of one entity (latent draws of one user).
    pub fn with_part(seed: u64, purpose: Purpose, part: u16, epoch: u32, entity: u32) -> Self {
        let tag = (u32::from(part) << 16) | purpose as u32;
        Self {
            key: [seed as u32, (seed >> 32) as u32],
            address: [entity, epoch, tag],
            next: 0,
            block: [0; 4],
        }
    }

    #[inline(always)]
    fn block(&self, index: u32) -> [u32; 4] {
        philox([index, self.address[0], self.address[1], self.address[2]], self.key)
    }

    /// Fills `words` with the stream's words `start_block * 4 ..`; independent of [`Stream::next_word`].
    pub fn fill(&self, start_block: u32, words: &mut [u32]) {
        dispatch!(simd::level(), _ => self.fill_in(start_block, words));
    }

    /// The body of [`Stream::fill`], compiled once for each instruction set: the words do not depend on it.
    #[inline(always)]
    #[expect(clippy::needless_range_loop, reason = "four arrays share the lane, and this form vectorises")]
    fn fill_in(&self, start_block: u32, words: &mut [u32]) {
        // Blocks are independent, so this loop vectorises across `WIDE` of them. Words lie in 64-bit lanes, where
        // a multiplication of their lower halves is one instruction; what stands in the upper halves is ignored.
        const WIDE: usize = Stream::RUN / 4;
        const LOW: u64 = 0xffff_ffff;
        let mut chunks = words.chunks_exact_mut(4 * WIDE);
        let mut block = start_block;
        for chunk in &mut chunks {
            let mut c = [[0u64; WIDE]; 4];
            for lane in 0..WIDE {
                c[0][lane] = u64::from(block.wrapping_add(lane as u32));
                c[1][lane] = u64::from(self.address[0]);
                c[2][lane] = u64::from(self.address[1]);
                c[3][lane] = u64::from(self.address[2]);
            }
            let mut key = self.key;
            for _ in 0..ROUNDS {
                for lane in 0..WIDE {
                    let a = u64::from(MULTIPLIER[0]) * (c[0][lane] & LOW);
                    let b = u64::from(MULTIPLIER[1]) * (c[2][lane] & LOW);
                    c[0][lane] = (b >> 32) ^ c[1][lane] ^ u64::from(key[0]);
                    c[1][lane] = b;
                    c[2][lane] = (a >> 32) ^ c[3][lane] ^ u64::from(key[1]);
                    c[3][lane] = a;
                }
                key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
            }
            for lane in 0..WIDE {
                for word in 0..4 {
                    chunk[4 * lane + word] = c[word][lane] as u32;
                }
            }
            block = block.wrapping_add(WIDE as u32);
        }
        for rest in chunks.into_remainder().chunks_mut(4) {
            rest.copy_from_slice(&self.block(block)[..rest.len()]);
            block = block.wrapping_add(1);
        }
    }

    /// The next 32 random bits, in the order of the address.
    #[inline]
    pub fn next_word(&mut self) -> u32 {
        if self.next.is_multiple_of(4) {
            self.block = self.block(self.next / 4);
        }
        let word = self.block[(self.next % 4) as usize];
        self.next = self.next.wrapping_add(1);
        word
    }

    /// The next 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        (u64::from(self.next_word()) << 32) | u64::from(self.next_word())
    }

    /// Uniform in [0, 1) with 53 random bits.
    #[inline]
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Uniform in `0..n`; the bias is below n / 2^64.
    ///
    /// # Panics
    /// If `n` is 0.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "a draw needs at least one outcome");
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// Standard normal, by Box and Muller's transform.
    #[inline]
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// Shuffles `values` (Fisher and Yates).
    pub fn shuffle<T>(&mut self, values: &mut [T]) {
        for i in (1..values.len()).rev() {
            values.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_gives_the_published_known_answers() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn filled_words_equal_words_taken_one_by_one() {
        let mut stream = Stream::new(7, Purpose::Negatives, 3, 11);
        let mut words = vec![0; 333];
        stream.fill(0, &mut words);
        assert!(words.iter().all(|&word| word == stream.next_word()));
        let mut tail = vec![0; 100];
        stream.fill(50, &mut tail);
        assert_eq!(tail, words[200..300]);
    }

    #[test]
    fn normals_have_mean_zero_and_variance_one() {
        let mut stream = Stream::new(1, Purpose::Latent, 0, 0);
        let n = 100_000;
        let (sum, squares) = (0..n).fold((0.0, 0.0), |(s, q), _| {
            let x = stream.normal();
            (s + x, q + x * x)
        });
        // Standard errors are 1/sqrt(n) and sqrt(2/n): five of them.
        assert!((sum / n as f64).abs() < 5.0 / (n as f64).sqrt());
        assert!((squares / n as f64 - 1.0).abs() < 5.0 * (2.0 / n as f64).sqrt());
    }

    #[test]
    fn a_shuffle_keeps_every_value() {
        let mut values: Vec<u32> = (0..1000).collect();
        Stream::new(5, Purpose::Shuffle, 0, 0).shuffle(&mut values);
        assert_ne!(values[..10], (0..10).collect::<Vec<_>>()[..]);
        values.sort_unstable();
        assert!(values.iter().enumerate().all(|(i, &v)| v == i as u32));
    }
}
