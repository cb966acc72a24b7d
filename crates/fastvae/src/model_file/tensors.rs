//! Named arrays in one file: the ground of model files and checkpoints.
//!
//! The layout is safetensors: 8 bytes for the length of the header, a JSON header with the name, type, shape
//! and place of each array and a map of texts, then the arrays end to end. Python reads it as it is. Arrays are
//! sorted by the size of their values, widest first, behind a header padded to 64 bytes: each is then aligned
//! and is used where it lies in a mapped file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytemuck::Pod;
use memmap2::Mmap;
use safetensors::tensor::{Dtype, Metadata, SafeTensors, TensorInfo};

use crate::error::{Error, Result};
use crate::math::{Matrix, MatrixView};
use crate::write::AtomicFile;

#[cfg(target_endian = "big")]
compile_error!("tensor files are little-endian and are used where they lie");

/// The header is padded so that the arrays start at a multiple of this.
const ALIGNMENT: usize = 64;

/// What to do about a file that is not what it should be.
const DAMAGED: &str = "the file is damaged or not of this kind: write, copy or download it again";

/// A type of value that arrays hold.
pub trait Element: Pod + Send + Sync + std::fmt::Debug {
    /// Its name in the header.
    const DTYPE: Dtype;
}

macro_rules! element {
    ($($type:ty => $dtype:ident),*) => {
        $(impl Element for $type {
            const DTYPE: Dtype = Dtype::$dtype;
        })*
    };
}

element!(f32 => F32, f64 => F64, u8 => U8, u32 => U32, u64 => U64, i64 => I64);

/// Arrays and texts to be written to one file; arrays are borrowed, and never copied whole.
#[derive(Debug, Default)]
pub struct TensorWriter<'a> {
    arrays: Vec<(TensorInfo, String, Values<'a>)>,
    metadata: BTreeMap<String, String>,
}

#[derive(Debug)]
enum Values<'a> {
    Bytes(&'a [u8]),
    Rows(MatrixView<'a>),
    Positions(&'a [usize]),
}

impl<'a> TensorWriter<'a> {
    /// A file without arrays.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a text.
    pub fn metadata(&mut self, key: impl Into<String>, text: impl Into<String>) -> &mut Self {
        self.metadata.insert(key.into(), text.into());
        self
    }

    /// Adds an array with one axis.
    pub fn array<T: Element>(&mut self, name: impl Into<String>, values: &'a [T]) -> &mut Self {
        self.shaped(name, &[values.len()], values)
    }

    /// Adds an array of `shape`, row-major.
    ///
    /// # Panics
    /// If `values` does not have as many values as `shape`.
    pub fn shaped<T: Element>(
        &mut self,
        name: impl Into<String>,
        shape: &[usize],
        values: &'a [T],
    ) -> &mut Self {
        assert_eq!(values.len(), shape.iter().product::<usize>(), "the values of an array of {shape:?}");
        self.add(name.into(), T::DTYPE, shape.to_vec(), Values::Bytes(bytemuck::cast_slice(values)))
    }

    /// Adds a matrix, written row by row without its padding.
    pub fn matrix(&mut self, name: impl Into<String>, matrix: MatrixView<'a>) -> &mut Self {
        self.rows(name, &[matrix.rows(), matrix.cols()], matrix)
    }

    /// As [`TensorWriter::matrix`], as an array of `shape`.
    ///
    /// # Panics
    /// If the matrix does not have as many values as `shape`.
    pub fn rows(&mut self, name: impl Into<String>, shape: &[usize], matrix: MatrixView<'a>) -> &mut Self {
        let len = matrix.rows() * matrix.cols();
        assert_eq!(len, shape.iter().product::<usize>(), "the values of an array of {shape:?}");
        self.add(name.into(), Dtype::F32, shape.to_vec(), Values::Rows(matrix))
    }

    /// Adds positions, as `u64`.
    pub fn positions(&mut self, name: impl Into<String>, positions: &'a [usize]) -> &mut Self {
        self.add(name.into(), Dtype::U64, vec![positions.len()], Values::Positions(positions))
    }

    fn add(&mut self, name: String, dtype: Dtype, shape: Vec<usize>, values: Values<'a>) -> &mut Self {
        debug_assert!(self.arrays.iter().all(|(_, other, _)| *other != name), "array `{name}` added twice");
        self.arrays.push((TensorInfo { dtype, shape, data_offsets: (0, 0) }, name, values));
        self
    }

    /// Writes everything to `path`, which appears whole or not at all.
    ///
    /// # Errors
    /// [`Error::Io`] if the disk refuses.
    pub fn write(mut self, path: impl AsRef<Path>) -> Result<()> {
        self.arrays.sort_by_key(|(info, ..)| std::cmp::Reverse(info.dtype.bitsize()));
        let mut end = 0;
        for (info, ..) in &mut self.arrays {
            let start = end;
            end += info.shape.iter().product::<usize>() * info.dtype.bitsize() / 8;
            info.data_offsets = (start, end);
        }
        let mut file = AtomicFile::create(path)?;
        self.write_to(&mut file).map_err(|source| Error::io(file.path(), source))?;
        file.commit()
    }

    fn write_to(&self, file: &mut impl Write) -> io::Result<()> {
        let mut entries: BTreeMap<&str, serde_json::Value> = BTreeMap::new();
        entries.insert("__metadata__", serde_json::to_value(&self.metadata)?);
        for (info, name, _) in &self.arrays {
            entries.insert(name, serde_json::to_value(info)?);
        }
        let mut header = serde_json::to_vec(&entries)?;
        header.resize((8 + header.len()).next_multiple_of(ALIGNMENT) - 8, b' ');
        file.write_all(&(header.len() as u64).to_le_bytes())?;
        file.write_all(&header)?;
        for (_, _, values) in &self.arrays {
            match values {
                Values::Bytes(bytes) => file.write_all(bytes)?,
                Values::Rows(matrix) => {
                    for row in 0..matrix.rows() {
                        file.write_all(bytemuck::cast_slice(matrix.row(row)))?;
                    }
                }
                Values::Positions(positions) => {
                    for &position in *positions {
                        file.write_all(&(position as u64).to_le_bytes())?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// A mapped file of named arrays, its header checked: every array lies within the file and is as long as its
/// shape says.
///
/// The file must not be changed in place while it is open; [`TensorWriter`] never does, it replaces files.
#[derive(Debug, Clone)]
pub struct TensorFile {
    path: PathBuf,
    map: Arc<Mmap>,
    header: Arc<Metadata>,
    /// Where the arrays start.
    start: usize,
}

impl TensorFile {
    /// Maps `path` and checks its header. Costs the header, not the arrays.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be opened, [`Error::ModelFile`] if it is not a file of named arrays.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let failed = |source| Error::io(path, source);
        let kind = std::fs::metadata(path).map_err(failed)?;
        if !kind.is_file() {
            return Err(Error::model_file(path, "is not a regular file", "give the path of a model file"));
        }
        let file = File::open(path).map_err(failed)?;
        // SAFETY: the bytes must not change while they are mapped. The library replaces files and never writes
        // into them; that others do not is the contract stated on the type. All access is bounds-checked against
        // the length of the map.
        let map = unsafe { Mmap::map(&file) }.map_err(failed)?;
        let (header_len, header) = SafeTensors::read_metadata(&map)
            .map_err(|problem| Error::model_file(path, problem.to_string(), DAMAGED))?;
        Ok(Self {
            path: path.to_path_buf(),
            map: Arc::new(map),
            header: Arc::new(header),
            start: 8 + header_len,
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the file.
    pub fn size(&self) -> usize {
        self.map.len()
    }

    /// The names of the arrays, in the order of the file.
    pub fn names(&self) -> Vec<String> {
        self.header.offset_keys()
    }

    /// Whether there is an array `name`.
    pub fn contains(&self, name: &str) -> bool {
        self.header.info(name).is_some()
    }

    /// The text under `key`.
    pub fn metadata(&self, key: &str) -> Option<&str> {
        self.header.metadata().as_ref()?.get(key).map(String::as_str)
    }

    /// The array `name`, where it lies in the map; a copy if it is not aligned there.
    ///
    /// # Errors
    /// [`Error::ModelFile`] if there is none, or it holds another type.
    pub fn array<T: Element>(&self, name: &str) -> Result<Array<T>> {
        let Some(info) = self.header.info(name) else {
            return Err(self.damaged(format!("there is no array `{name}`")));
        };
        if info.dtype != T::DTYPE {
            return Err(self.damaged(format!(
                "array `{name}` holds {:?}, expected {:?}",
                info.dtype,
                T::DTYPE
            )));
        }
        let range = self.start + info.data_offsets.0..self.start + info.data_offsets.1;
        let bytes = &self.map[range.clone()];
        let values = match bytemuck::try_cast_slice::<u8, T>(bytes) {
            Ok(_) => Storage::Mapped { map: Arc::clone(&self.map), range },
            Err(_) => Storage::Owned(bytemuck::pod_collect_to_vec(bytes)),
        };
        Ok(Array { values, shape: info.shape.clone() })
    }

    /// As [`TensorFile::array`], of exactly this shape.
    ///
    /// # Errors
    /// [`Error::ModelFile`] if there is none, or it has another type or shape.
    pub fn array_of<T: Element>(&self, name: &str, shape: &[usize]) -> Result<Array<T>> {
        let array = self.array(name)?;
        if array.shape != shape {
            return Err(self.damaged(format!("array `{name}` is {:?}, expected {shape:?}", array.shape)));
        }
        Ok(array)
    }

    /// An [`Error::ModelFile`] that says to get the file anew.
    pub fn damaged(&self, problem: impl Into<String>) -> Error {
        Error::model_file(&self.path, problem, DAMAGED)
    }
}

/// An array of a [`TensorFile`]; the file stays mapped as long as it lives.
#[derive(Debug, Clone)]
pub struct Array<T> {
    values: Storage<T>,
    shape: Vec<usize>,
}

#[derive(Debug, Clone)]
enum Storage<T> {
    Mapped { map: Arc<Mmap>, range: Range<usize> },
    Owned(Vec<T>),
}

impl<T: Element> Array<T> {
    /// Length of each axis.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Whether the values lie in the mapped file.
    pub fn is_mapped(&self) -> bool {
        matches!(self.values, Storage::Mapped { .. })
    }

    /// Gives back the memory of the values where these lie in the mapped file; what is read again comes from there.
    pub fn forget(&self) {
        if let Storage::Mapped { map, range } = &self.values {
            // SAFETY: pages of a shared, read-only map of a file are dropped and read anew; no contents change.
            let dropped = unsafe {
                map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, range.start, range.len())
            };
            // A refusal changes nothing but memory.
            let _ = dropped;
        }
    }
}

impl Array<f32> {
    /// The values as a matrix: one row for each step of the first axis, or a single row where there is one axis.
    ///
    /// # Panics
    /// If there are more than two axes.
    pub fn view(&self) -> MatrixView<'_> {
        match self.shape[..] {
            [cols] => MatrixView::new(self, 1, cols),
            [rows, cols] => MatrixView::new(self, rows, cols),
            _ => panic!("an array of shape {:?} is no matrix", self.shape),
        }
    }

    /// A padded copy of [`Array::view`].
    ///
    /// # Panics
    /// If there are more than two axes.
    pub fn to_matrix(&self) -> Matrix {
        let view = self.view();
        Matrix::from_rows(view.rows(), view.cols(), self)
    }

    /// Whether every value is finite; reads the whole array.
    pub fn is_finite(&self) -> bool {
        self.iter().all(|value| value.is_finite())
    }
}

impl<T: Element> Deref for Array<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.values {
            Storage::Mapped { map, range } => bytemuck::cast_slice(&map[range.clone()]),
            Storage::Owned(values) => values,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(path: &Path) {
        let matrix = Matrix::from_rows(3, 5, &(0..15).map(|v| v as f32).collect::<Vec<_>>());
        let mut writer = TensorWriter::new();
        writer
            .metadata("note", "\"quoted\" ß")
            .array("bytes", &[1u8, 2, 3])
            .matrix("matrix", matrix.view())
            .array("integers", &[-1i64, i64::MAX])
            .positions("positions", &[0, 7])
            .shaped("codes", &[2, 2], &[1u32, 2, 3, 4])
            .array::<f32>("nothing", &[]);
        writer.write(path).unwrap();
    }

    #[test]
    fn arrays_come_back_as_written_and_are_not_copied() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.tensors");
        example(&path);
        let file = TensorFile::open(&path).unwrap();
        assert_eq!(file.metadata("note"), Some("\"quoted\" ß"));
        assert_eq!(&file.array::<u8>("bytes").unwrap()[..], [1, 2, 3]);
        assert_eq!(&file.array::<i64>("integers").unwrap()[..], [-1, i64::MAX]);
        assert_eq!(&file.array::<u64>("positions").unwrap()[..], [0, 7]);
        assert_eq!(file.array::<u32>("codes").unwrap().shape(), [2, 2]);
        assert!(file.array::<f32>("nothing").unwrap().is_empty());
        let matrix = file.array_of::<f32>("matrix", &[3, 5]).unwrap();
        assert!(matrix.is_mapped());
        assert_eq!(matrix.view().row(2), [10.0, 11.0, 12.0, 13.0, 14.0]);
        assert_eq!(matrix.to_matrix().row(2)[..6], [10.0, 11.0, 12.0, 13.0, 14.0, 0.0]);
        drop(file);
        assert_eq!(matrix[14], 14.0, "an array keeps its file mapped");
        SafeTensors::deserialize(&std::fs::read(&path).unwrap()).unwrap();
    }

    #[test]
    fn what_is_not_there_is_an_error_with_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.tensors");
        example(&path);
        let file = TensorFile::open(&path).unwrap();
        let problem = |error: Error| error.to_string();
        assert!(problem(file.array::<f32>("absent").unwrap_err()).contains("no array `absent`"));
        assert!(problem(file.array::<f32>("codes").unwrap_err()).contains("`codes` holds U32, expected F32"));
        assert!(
            problem(file.array_of::<u32>("codes", &[4]).unwrap_err()).contains("is [2, 2], expected [4]")
        );
        assert!(matches!(TensorFile::open(directory.path()), Err(Error::ModelFile { .. })));
        assert!(matches!(TensorFile::open(directory.path().join("absent")), Err(Error::Io { .. })));
    }

    #[test]
    fn arrays_off_their_alignment_are_copied() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.tensors");
        let header = br#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
        for pad in 0..4 {
            let mut bytes = ((header.len() + pad) as u64).to_le_bytes().to_vec();
            bytes.extend_from_slice(header);
            bytes.extend(std::iter::repeat_n(b' ', pad));
            bytes.extend(2.5f32.to_le_bytes());
            std::fs::write(&path, bytes).unwrap();
            let array = TensorFile::open(&path).unwrap().array::<f32>("a").unwrap();
            assert_eq!(&array[..], [2.5]);
            assert_eq!(array.is_mapped(), (8 + header.len() + pad).is_multiple_of(4));
        }
    }

    #[test]
    fn damaged_headers_are_errors_and_never_panics() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.tensors");
        example(&path);
        let whole = std::fs::read(&path).unwrap();
        let open = |bytes: &[u8]| {
            // Replaced, not rewritten: a test must keep the contract too.
            std::fs::remove_file(&path).unwrap();
            std::fs::write(&path, bytes).unwrap();
            TensorFile::open(&path)
        };
        for len in 0..whole.len() {
            assert!(matches!(open(&whole[..len]), Err(Error::ModelFile { .. })), "cut at {len}");
        }
        let huge = [&u64::MAX.to_le_bytes()[..], &whole[8..]].concat();
        assert!(open(&huge).is_err());
        for at in 0..whole.len() {
            for flip in [1, 0x80, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] ^= flip;
                if let Ok(file) = open(&bytes) {
                    for name in file.names() {
                        let _ = file.array::<f32>(&name).map(|array| array.is_finite());
                        let _ = file.array::<u64>(&name).map(|array| array.to_vec());
                    }
                }
            }
        }
    }
}
