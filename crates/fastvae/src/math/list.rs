//! [`List`]: as many values as there are items, say, in memory of their own where that is much.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use bytemuck::{Pod, cast_slice};

use crate::math::lines::{Lines, table_bytes};
use crate::math::matrix::LANES;

/// A list of a fixed length, zero at first.
///
/// A long one is read in random order, which is faster on huge pages, and is made anew from time to time: memory of the
/// allocator would be left with holes by that, and a training would grow with every refresh of its index.
#[derive(Clone)]
pub struct List<T> {
    lines: Lines,
    len: usize,
    _values: PhantomData<T>,
}

impl<T: Pod> List<T> {
    /// `len` zeros.
    pub fn zeros(len: usize) -> Self {
        const { assert!(align_of::<T>() <= LANES * size_of::<f32>(), "values in whole lines") };
        let floats = (len * size_of::<T>()).div_ceil(size_of::<f32>());
        Self { lines: Lines::zeros(floats.next_multiple_of(LANES)), len, _values: PhantomData }
    }

    /// Bytes that one of `len` values takes once all of it was touched.
    pub fn bytes_of(len: usize) -> u64 {
        table_bytes((len * size_of::<T>()).div_ceil(size_of::<f32>()) as u64)
    }
}

impl<T: Pod> Deref for List<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: the lines hold `len` values, which any bits are, and start where a line does.
        unsafe { std::slice::from_raw_parts(self.lines.as_slice().as_ptr().cast(), self.len) }
    }
}

impl<T: Pod> DerefMut for List<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and nobody else reaches them meanwhile.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_slice().as_mut_ptr().cast(), self.len) }
    }
}

impl<T: Pod> Default for List<T> {
    fn default() -> Self {
        Self::zeros(0)
    }
}

impl<T: Pod> From<&[T]> for List<T> {
    fn from(values: &[T]) -> Self {
        let mut list = Self::zeros(values.len());
        list.copy_from_slice(values);
        list
    }
}

impl<T: Pod> PartialEq for List<T> {
    fn eq(&self, other: &Self) -> bool {
        cast_slice::<T, u8>(self) == cast_slice::<T, u8>(other)
    }
}

impl<T: Pod> Eq for List<T> {}

impl<T: Pod + fmt::Debug> fmt::Debug for List<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_holds_what_it_is_told_short_or_long() {
        for n in [0, 5, 17, 3 << 20] {
            let mut list: List<u32> = List::zeros(n);
            assert!(list.len() == n && list.iter().all(|&value| value == 0));
            list.iter_mut().zip(0..).for_each(|(value, k)| *value = k);
            let copy = List::from(&*list.clone());
            assert_eq!(copy, list);
            list.fill(7);
            assert!(copy.iter().zip(0..).all(|(&value, k)| value == k));
            assert!(n == 0 || copy != list);
        }
    }

    #[test]
    fn values_of_any_size_fit_and_equal_lengths_differ_from_equal_lines() {
        let bytes: List<u8> = List::zeros(65);
        assert_eq!(bytes.len(), 65);
        assert_ne!(List::<u8>::zeros(64), List::zeros(63));
        assert_eq!(format!("{:?}", List::from(&[1u64, 2][..])), "[1, 2]");
    }
}
