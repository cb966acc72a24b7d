//! Parquet files: flat columns of integers, strings and floats.

use std::fs::File;

use parquet::basic::{ConvertedType, LogicalType, TimeUnit};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::schema::types::ColumnDescriptor;

use crate::data::read::collect::{Collector, Id, Values};
use crate::data::read::columns::Columns;
use crate::data::read::source::Source;
use crate::data::read::value;
use crate::error::{Error, Result};

/// Rows decoded at a time.
const BATCH: usize = 1 << 13;

/// Reads the file behind `source` row group by row group.
pub(crate) fn read(source: &Source, rows: &mut Collector<'_>) -> Result<()> {
    let path = rows.path;
    if source.is_compressed() {
        return Err(Error::input(path, None, "the Parquet file is compressed again", "decompress it first"));
    }
    let damaged = |error: ParquetError| {
        Error::input(
            path,
            None,
            format!("not readable as Parquet ({error})"),
            "write or fetch the file again",
        )
    };
    let file = File::open(path).map_err(|source| Error::io(path, source))?;
    let reader = SerializedFileReader::new(file).map_err(damaged)?;
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let names: Vec<String> = schema.columns().iter().map(|column| column.path().string()).collect();
    let columns = Columns::in_header(path, &names, rows.options)?;
    let wanted = [Some(columns.user), Some(columns.item), columns.rating, columns.weight, columns.timestamp];
    let mut first_row = 0;
    for group in 0..reader.num_row_groups() {
        let group = reader.get_row_group(group).map_err(damaged)?;
        let mut open = Vec::new();
        for at in wanted {
            open.push(at.map(|at| open_column(&*group, at, &schema.column(at), rows)).transpose()?);
        }
        for column in open[..2].iter().flatten() {
            if matches!(column.batch, Batch::Float(_) | Batch::Double(_)) {
                let problem = format!("the identifiers in column `{}` are floats", column.name);
                return Err(Error::input(path, None, problem, "store them as integers or strings"));
            }
        }
        let n_rows = group.metadata().num_rows() as u64;
        let mut done = 0;
        while done < n_rows {
            let n = BATCH.min((n_rows - done) as usize);
            for column in open.iter_mut().flatten() {
                column.fill(n, first_row + done, rows)?;
            }
            push_batch(&open, n, first_row + done, rows)?;
            done += n as u64;
        }
        first_row += n_rows;
    }
    Ok(())
}

fn push_batch(open: &[Option<OpenColumn>], n: usize, first: u64, rows: &mut Collector<'_>) -> Result<()> {
    let number = |column: usize, at: usize| open[column].as_ref().map(|column| column.batch.number(at));
    for at in 0..n {
        let id = |column: usize| {
            open[column].as_ref().map(|column| column.batch.id(at)).expect("users and items are always open")
        };
        let row = first + at as u64 + 1;
        let timestamp = open[4].as_ref().map(|column| column.seconds(at, row, rows)).transpose()?;
        let values = Values { rating: number(2, at), weight: number(3, at), timestamp };
        rows.push(id(0), id(1), values, Some(row))?;
    }
    Ok(())
}

/// A column of one row group and its current batch.
struct OpenColumn {
    name: String,
    reader: ColumnReader,
    /// Whether levels tell nulls apart.
    optional: bool,
    levels: Vec<i16>,
    batch: Batch,
    /// Divides a timestamp to seconds.
    per_second: i64,
}

enum Batch {
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Float(Vec<f32>),
    Double(Vec<f64>),
    Bytes(Vec<ByteArray>),
}

impl Batch {
    fn number(&self, at: usize) -> f64 {
        match self {
            Self::Int32(values) => f64::from(values[at]),
            Self::Int64(values) => values[at] as f64,
            Self::Float(values) => f64::from(values[at]),
            Self::Double(values) => values[at],
            Self::Bytes(values) => value::number(values[at].data()).unwrap_or(f64::NAN),
        }
    }

    fn id(&self, at: usize) -> Id<'_> {
        match self {
            Self::Int32(values) => Id::Integer(i64::from(values[at])),
            Self::Int64(values) => Id::Integer(values[at]),
            Self::Bytes(values) => Id::Text(values[at].data()),
            Self::Float(_) | Self::Double(_) => unreachable!("refused as identifiers when opened"),
        }
    }
}

impl OpenColumn {
    fn seconds(&self, at: usize, row: u64, rows: &Collector<'_>) -> Result<i64> {
        match &self.batch {
            Batch::Int64(values) => Ok(values[at].div_euclid(self.per_second)),
            Batch::Bytes(values) => value::timestamp(values[at].data()).ok_or_else(|| {
                let problem = format!("`{}` in column `{}` is not a time", values[at], self.name);
                Error::input(rows.path, row, problem, "correct it, or choose another column with --time-col")
            }),
            other => Ok(other.number(at) as i64),
        }
    }

    /// Reads the next `n` values; `first` is their row in the file, from 0.
    fn fill(&mut self, n: usize, first: u64, rows: &Collector<'_>) -> Result<()> {
        self.levels.clear();
        let levels = self.optional.then_some(&mut self.levels);
        let read = match (&mut self.reader, &mut self.batch) {
            (ColumnReader::Int32ColumnReader(reader), Batch::Int32(values)) => {
                next(reader, n, levels, values)
            }
            (ColumnReader::Int64ColumnReader(reader), Batch::Int64(values)) => {
                next(reader, n, levels, values)
            }
            (ColumnReader::FloatColumnReader(reader), Batch::Float(values)) => {
                next(reader, n, levels, values)
            }
            (ColumnReader::DoubleColumnReader(reader), Batch::Double(values)) => {
                next(reader, n, levels, values)
            }
            (ColumnReader::ByteArrayColumnReader(reader), Batch::Bytes(values)) => {
                next(reader, n, levels, values)
            }
            _ => unreachable!("the batch was chosen by the type of the reader"),
        };
        let read = read.map_err(|error| {
            let problem = format!("column `{}` is damaged ({error})", self.name);
            Error::input(rows.path, first + 1, problem, "write or fetch the file again")
        })?;
        if read < n {
            let missing = self.levels.iter().position(|&level| level == 0).unwrap_or(read);
            return Err(Error::input(
                rows.path,
                first + missing as u64 + 1,
                format!("column `{}` has no value in this row", self.name),
                "fill it in or remove the row",
            ));
        }
        Ok(())
    }
}

/// Replaces `values` by up to `n` more; returns how many there were.
fn next<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    n: usize,
    mut levels: Option<&mut Vec<i16>>,
    values: &mut Vec<T::T>,
) -> parquet::errors::Result<usize> {
    values.clear();
    let mut records = 0;
    // One call may end at a page.
    while records < n {
        let (read, ..) = reader.read_records(n - records, levels.as_deref_mut(), None, values)?;
        if read == 0 {
            break;
        }
        records += read;
    }
    Ok(values.len())
}

fn open_column(
    group: &dyn RowGroupReader,
    at: usize,
    descriptor: &ColumnDescriptor,
    rows: &Collector<'_>,
) -> Result<OpenColumn> {
    let name = descriptor.path().string();
    let unusable = |problem: String| {
        Error::input(rows.path, None, problem, "store it as a flat column of integers, strings or floats")
    };
    if descriptor.max_rep_level() > 0 || descriptor.max_def_level() > 1 {
        return Err(unusable(format!("column `{name}` is nested")));
    }
    let reader = group
        .get_column_reader(at)
        .map_err(|error| unusable(format!("column `{name}` cannot be opened ({error})")))?;
    let batch = match &reader {
        ColumnReader::Int32ColumnReader(_) => Batch::Int32(Vec::new()),
        ColumnReader::Int64ColumnReader(_) => Batch::Int64(Vec::new()),
        ColumnReader::FloatColumnReader(_) => Batch::Float(Vec::new()),
        ColumnReader::DoubleColumnReader(_) => Batch::Double(Vec::new()),
        ColumnReader::ByteArrayColumnReader(_) => Batch::Bytes(Vec::new()),
        _ => {
            let kind = descriptor.physical_type();
            return Err(unusable(format!("column `{name}` has the type {kind}")));
        }
    };
    let per_second = match (descriptor.logical_type_ref(), descriptor.converted_type()) {
        (Some(LogicalType::Timestamp(stamp)), _) => match stamp.unit {
            TimeUnit::MILLIS => 1_000,
            TimeUnit::MICROS => 1_000_000,
            TimeUnit::NANOS => 1_000_000_000,
        },
        (_, ConvertedType::TIMESTAMP_MILLIS) => 1_000,
        (_, ConvertedType::TIMESTAMP_MICROS) => 1_000_000,
        _ => 1,
    };
    let optional = descriptor.max_def_level() > 0;
    Ok(OpenColumn { name, reader, optional, levels: Vec::new(), batch, per_second })
}
