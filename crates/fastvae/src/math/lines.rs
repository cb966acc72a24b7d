//! [`Lines`]: zeroed memory in whole cache lines, on huge pages where it is large.

use std::ptr::NonNull;

use bytemuck::{Pod, Zeroable};
use memmap2::MmapMut;

use crate::math::matrix::LANES;

/// One cache line.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct CacheLine([f32; LANES]);

/// The size of a huge page on the common processors: larger memory is on such pages.
pub(crate) const HUGE_PAGE: usize = 2 << 20;
/// Memory from this size on is mapped, so that it goes back when it is dropped. The allocator would keep it, and what is
/// made anew from time to time, each a little larger than before, would leave ever more holes.
const MAPPED: usize = 128 << 10;

/// What a table of this many floats takes once all of it was touched.
pub(crate) fn table_bytes(floats: u64) -> u64 {
    let bytes = floats * size_of::<f32>() as u64;
    if bytes >= HUGE_PAGE as u64 { bytes.next_multiple_of(HUGE_PAGE as u64) } else { bytes }
}

/// Floats in whole cache lines, zero at first.
///
/// Rows of large tables are read in random order, and huge pages mean fewer misses of the address translation. The
/// system gives them only to memory that is asked for before it is touched, which an allocator's zeroed memory of this
/// alignment is not: it is written over. Pages of mapped memory are taken when they are first written.
pub(super) struct Lines {
    start: NonNull<f32>,
    len: usize,
    _owner: Owner,
}

/// Who frees the memory; nothing is read or written through it.
enum Owner {
    Heap(#[expect(dead_code, reason = "it is only dropped")] Vec<CacheLine>),
    Map(#[expect(dead_code, reason = "it is only dropped")] MmapMut),
}

// SAFETY: the memory is owned and reached only through the borrow rules of `as_slice` and `as_mut_slice`.
unsafe impl Send for Lines {}
// SAFETY: as above.
unsafe impl Sync for Lines {}

impl Lines {
    /// Zeros, `len` of them, a multiple of [`LANES`].
    pub fn zeros(len: usize) -> Self {
        debug_assert!(len.is_multiple_of(LANES), "whole lines");
        if len * size_of::<f32>() >= MAPPED
            && let Some(mapped) = Self::mapped(len)
        {
            return mapped;
        }
        let mut lines: Vec<CacheLine> = bytemuck::zeroed_vec(len / LANES);
        Self { start: NonNull::from(lines.as_mut_slice()).cast(), len, _owner: Owner::Heap(lines) }
    }

    /// On huge pages if it is large and the system agrees; a refusal changes nothing but time.
    fn mapped(len: usize) -> Option<Self> {
        let bytes = len * size_of::<f32>();
        if bytes < HUGE_PAGE {
            let mut map = MmapMut::map_anon(bytes).ok()?;
            return Some(Self { start: NonNull::from(&mut map[..]).cast(), len, _owner: Owner::Map(map) });
        }
        let bytes = bytes.next_multiple_of(HUGE_PAGE);
        let mut map = MmapMut::map_anon(bytes + HUGE_PAGE).ok()?;
        let offset = map.as_ptr().align_offset(HUGE_PAGE);
        #[cfg(target_os = "linux")]
        let _ = map.advise_range(memmap2::Advice::HugePage, offset, bytes);
        let start = NonNull::from(&mut map[offset..offset + bytes]).cast();
        Some(Self { start, len, _owner: Owner::Map(map) })
    }

    #[inline(always)]
    pub fn as_slice(&self) -> &[f32] {
        // SAFETY: the owner holds `len` initialised floats at `start`, for as long as this is borrowed.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    #[inline(always)]
    pub fn as_mut_slice(&mut self) -> &mut [f32] {
        // SAFETY: as above, and nobody else reaches them meanwhile.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Clone for Lines {
    fn clone(&self) -> Self {
        let mut copy = Self::zeros(self.len);
        copy.as_mut_slice().copy_from_slice(self.as_slice());
        copy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_large_memory_is_aligned_zero_and_copied_whole() {
        for len in [
            0,
            LANES,
            MAPPED / 4 - LANES,
            MAPPED / 4,
            HUGE_PAGE / 4 - LANES,
            HUGE_PAGE / 4,
            HUGE_PAGE + 5 * LANES,
        ] {
            let mut lines = Lines::zeros(len);
            assert_eq!(lines.as_slice().len(), len);
            assert!(lines.as_slice().as_ptr().addr().is_multiple_of(64), "{len}");
            assert!(lines.as_slice().iter().all(|&x| x == 0.0));
            lines.as_mut_slice().iter_mut().enumerate().for_each(|(i, x)| *x = i as f32);
            let copy = lines.clone();
            lines.as_mut_slice().fill(-1.0);
            assert!(copy.as_slice().iter().enumerate().all(|(i, &x)| x == i as f32), "{len}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn large_memory_is_advised_before_it_is_touched() {
        let lines = Lines::zeros(HUGE_PAGE);
        let address = lines.as_slice().as_ptr().addr();
        assert!(address.is_multiple_of(HUGE_PAGE));
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let holds = |line: &str| {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            range.is_some_and(|(start, end)| {
                let parse = |text| usize::from_str_radix(text, 16).unwrap_or(0);
                (parse(start)..parse(end)).contains(&address)
            })
        };
        let mut mapping = maps.lines().skip_while(|line| !holds(line)).skip(1);
        let mut field = |name: &str| mapping.find(|line| line.starts_with(name)).unwrap().to_owned();
        assert!(field("Rss:").contains(" 0 kB"), "touched already");
        // Systems without huge pages refuse the advice.
        if std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            assert!(field("VmFlags:").contains(" hg"), "not advised");
        }
    }
}
