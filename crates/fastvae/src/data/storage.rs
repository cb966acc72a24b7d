//! [`Storage`]: an array that is either in memory or in a mapped file.
//!
//! Interactions, identifiers and titles are read the same way from both; what lies in a file costs no memory that
//! the system cannot take back.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use bytemuck::Pod;
use memmap2::Mmap;

use crate::error::{Error, Result};

/// Values that never change once they are here; a clone shares them.
#[derive(Clone)]
pub(crate) enum Storage<T> {
    Owned(Arc<Vec<T>>),
    Mapped {
        map: Arc<Mmap>,
        /// Bytes of the map, aligned for `T` and a whole number of values.
        range: Range<usize>,
    },
}

impl<T: Pod> Storage<T> {
    /// The values at `range` of `map`, used where they lie.
    ///
    /// # Errors
    /// [`Error::Data`] if `range` leaves the map, is not aligned or ends within a value.
    pub(crate) fn mapped(map: &Arc<Mmap>, range: Range<usize>) -> Result<Self> {
        let bytes = map.get(range.clone()).ok_or_else(|| {
            let problem = format!("bytes {} to {} are not within {}", range.start, range.end, map.len());
            Error::data(problem, "the file was cut off: write it again")
        })?;
        match bytemuck::try_cast_slice::<u8, T>(bytes) {
            Ok(_) => Ok(Self::Mapped { map: Arc::clone(map), range }),
            Err(problem) => Err(Error::data(
                format!("bytes {} to {} are no array ({problem})", range.start, range.end),
                "the file is damaged: write it again",
            )),
        }
    }

    /// Whether the values lie in a mapped file.
    pub(crate) fn is_mapped(&self) -> bool {
        matches!(self, Self::Mapped { .. })
    }
}

impl<T: Pod> Deref for Storage<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match self {
            Self::Owned(values) => values,
            // The cast cannot fail, since `mapped` has tried it; a row costs its check of two remainders.
            Self::Mapped { map, range } => bytemuck::cast_slice(&map[range.clone()]),
        }
    }
}

impl<T> From<Vec<T>> for Storage<T> {
    fn from(values: Vec<T>) -> Self {
        Self::Owned(Arc::new(values))
    }
}

impl<T> Default for Storage<T> {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl<T: Pod + PartialEq> PartialEq for Storage<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Pod + Eq> Eq for Storage<T> {}

impl<T: Pod + fmt::Debug> fmt::Debug for Storage<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn map_of(bytes: &[u8]) -> Arc<Mmap> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        // SAFETY: the file has no name, so nothing else can change it.
        Arc::new(unsafe { Mmap::map(&file) }.unwrap())
    }

    #[test]
    fn mapped_values_equal_owned_ones() {
        let values: Vec<u32> = (0..100).collect();
        let map = map_of(bytemuck::cast_slice(&values));
        let mapped = Storage::<u32>::mapped(&map, 40..400).unwrap();
        assert!(mapped.is_mapped());
        assert_eq!(mapped, Storage::from(values[10..].to_vec()));
        assert_eq!(mapped.clone().as_ptr(), mapped.as_ptr());
    }

    #[test]
    fn ranges_that_are_no_arrays_are_refused() {
        let map = map_of(&[0; 64]);
        let refused = |range| Storage::<u64>::mapped(&map, range).unwrap_err().to_string();
        assert!(refused(0..72).contains("not within 64"), "{}", refused(0..72));
        assert!(refused(4..12).contains("no array"));
        assert!(refused(0..12).contains("no array"));
        #[allow(clippy::reversed_empty_ranges, reason = "what a hostile file could say")]
        let reversed = 16..8;
        assert!(refused(reversed).contains("not within"));
    }
}
