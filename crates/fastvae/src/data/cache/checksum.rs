//! The checksum of cache files: finds damage, not forgery.
//!
//! Eight multiply-and-mix chains over 8-byte words, so that a checked file opens at the speed of memory; a
//! cyclic redundancy check without hardware help takes ten times as long. What a forger could put behind a
//! right checksum is caught by the checks of the values themselves.

const LANES: usize = 8;
const BLOCK: usize = LANES * 8;
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// A checksum under construction; the result does not depend on how the bytes are cut into updates.
#[derive(Debug, Clone)]
pub(crate) struct Checksum {
    lanes: [u64; LANES],
    pending: [u8; BLOCK],
    n_pending: usize,
    length: u64,
}

impl Checksum {
    pub(crate) fn new() -> Self {
        Self {
            lanes: std::array::from_fn(|lane| MULTIPLIER.rotate_left(lane as u32 * 8)),
            pending: [0; BLOCK],
            n_pending: 0,
            length: 0,
        }
    }

    /// The checksum of `bytes`.
    pub(crate) fn of(bytes: &[u8]) -> u64 {
        let mut sum = Self::new();
        sum.update(bytes);
        sum.finish()
    }

    pub(crate) fn update(&mut self, mut bytes: &[u8]) {
        self.length += bytes.len() as u64;
        if self.n_pending > 0 {
            let taken = bytes.len().min(BLOCK - self.n_pending);
            self.pending[self.n_pending..self.n_pending + taken].copy_from_slice(&bytes[..taken]);
            self.n_pending += taken;
            bytes = &bytes[taken..];
            if self.n_pending < BLOCK {
                return;
            }
            mix(&mut self.lanes, &self.pending);
            self.n_pending = 0;
        }
        let mut lanes = self.lanes;
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        for block in blocks {
            mix(&mut lanes, block);
        }
        self.lanes = lanes;
        self.pending[..rest.len()].copy_from_slice(rest);
        self.n_pending = rest.len();
    }

    pub(crate) fn finish(mut self) -> u64 {
        self.pending[self.n_pending..].fill(0);
        mix(&mut self.lanes, &self.pending);
        self.lanes.iter().fold(self.length, |sum, &lane| {
            let sum = (sum ^ lane).wrapping_mul(MULTIPLIER);
            sum ^ (sum >> 29)
        })
    }
}

#[inline(always)]
fn mix(lanes: &mut [u64; LANES], block: &[u8; BLOCK]) {
    let (words, _) = block.as_chunks::<8>();
    for (lane, word) in lanes.iter_mut().zip(words) {
        // The rotation brings the upper bits down, where the next product spreads them again.
        *lane = (*lane ^ u64::from_le_bytes(*word)).wrapping_mul(MULTIPLIER).rotate_left(31);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(n: usize) -> Vec<u8> {
        (0..n).map(|at| (at * 37 % 251) as u8).collect()
    }

    #[test]
    fn the_cuts_between_updates_do_not_matter() {
        let bytes = bytes(1000);
        let whole = Checksum::of(&bytes);
        for cut in [0, 1, 63, 64, 65, 500, 999] {
            let mut sum = Checksum::new();
            sum.update(&bytes[..cut]);
            for byte in bytes[cut..].chunks(7) {
                sum.update(byte);
            }
            assert_eq!(sum.finish(), whole, "{cut}");
        }
    }

    #[test]
    fn every_changed_bit_changes_it() {
        let mut bytes = bytes(200);
        let whole = Checksum::of(&bytes);
        for bit in 0..1600 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(Checksum::of(&bytes), whole, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        bytes.push(0);
        assert_ne!(Checksum::of(&bytes), whole, "a zero at the end");
        bytes.swap(0, 64);
        assert_ne!(Checksum::of(&bytes), whole, "words that changed places");
    }
}
