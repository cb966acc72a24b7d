//! Recommendations as Parquet: one row for each, the columns of the table.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::parquet::basic::{Compression, ZstdLevel};
use ::parquet::data_type::{ByteArray, ByteArrayType, DataType, FloatType, Int32Type, Int64Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use ::parquet::schema::parser::parse_message_type;

use crate::data::{IdMap, UserId};
use crate::error::{Error, Result};
use crate::eval::Scored;
use crate::model::Model;
use crate::write::AtomicFile;

/// Rows held back until a row group is written.
const GROUP: usize = 1 << 18;

/// A Parquet file under construction.
pub(super) struct ParquetOutput {
    path: PathBuf,
    writer: SerializedFileWriter<AtomicFile>,
    rows: Vec<(UserId, i32, Scored)>,
}

impl ParquetOutput {
    pub(super) fn create(path: &Path, model: &Model, users: &IdMap) -> Result<Self> {
        let kind = |ids: &IdMap, name: &str| match ids.is_integers() {
            true => format!("REQUIRED INT64 {name};"),
            false => format!("REQUIRED BYTE_ARRAY {name} (UTF8);"),
        };
        let schema = format!(
            "message recommendations {{ {} {} REQUIRED INT32 rank; REQUIRED FLOAT score; {} }}",
            kind(users, "user_id"),
            kind(model.item_ids(), "item_id"),
            if model.titles().is_some() { "REQUIRED BYTE_ARRAY title (UTF8);" } else { "" },
        );
        let schema = parse_message_type(&schema).expect("the schema above is valid");
        let level = ZstdLevel::try_new(3).expect("3 is a level of Zstandard");
        let properties = WriterProperties::builder().set_compression(Compression::ZSTD(level)).build();
        let file = AtomicFile::create(path)?;
        let writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties))
            .map_err(|problem| failed(path, problem))?;
        Ok(Self { path: path.to_path_buf(), writer, rows: Vec::new() })
    }

    pub(super) fn write(
        &mut self,
        model: &Model,
        users: &IdMap,
        user: UserId,
        best: &[Scored],
    ) -> Result<()> {
        assert!((user as usize) < users.len(), "user {user} of {}", users.len());
        self.rows.extend((1..).zip(best).map(|(rank, &scored)| (user, rank, scored)));
        if self.rows.len() >= GROUP { self.write_group(model, users) } else { Ok(()) }
    }

    pub(super) fn finish(mut self, model: &Model, users: &IdMap) -> Result<()> {
        if !self.rows.is_empty() {
            self.write_group(model, users)?;
        }
        self.writer.into_inner().map_err(|problem| failed(&self.path, problem))?.commit()
    }

    fn write_group(&mut self, model: &Model, users: &IdMap) -> Result<()> {
        let rows = std::mem::take(&mut self.rows);
        let mut write = || {
            let mut group = self.writer.next_row_group()?;
            names(&mut group, users, rows.iter().map(|row| row.0))?;
            names(&mut group, model.item_ids(), rows.iter().map(|row| row.2.item))?;
            column::<Int32Type>(&mut group, rows.iter().map(|row| row.1))?;
            column::<FloatType>(&mut group, rows.iter().map(|row| row.2.score))?;
            if let Some(titles) = model.titles() {
                let title =
                    |row: &(_, _, Scored)| ByteArray::from(titles.get(row.2.item).unwrap_or_default());
                column::<ByteArrayType>(&mut group, rows.iter().map(title))?;
            }
            group.close().map(|_| ())
        };
        write().map_err(|problem| failed(&self.path, problem))
    }
}

type Group<'g> = SerializedRowGroupWriter<'g, AtomicFile>;

fn names(
    group: &mut Group<'_>,
    ids: &IdMap,
    positions: impl Iterator<Item = u32>,
) -> Result<(), ParquetError> {
    if ids.is_integers() {
        let integer =
            |position| ids.integers().map_or(i64::from(position), |integers| integers[position as usize]);
        column::<Int64Type>(group, positions.map(integer))
    } else {
        column::<ByteArrayType>(group, positions.map(|position| ByteArray::from(&*ids.name(position))))
    }
}

fn column<T: DataType>(
    group: &mut Group<'_>,
    values: impl Iterator<Item = T::T>,
) -> Result<(), ParquetError> {
    let values: Vec<T::T> = values.collect();
    let mut column = group.next_column()?.expect("as many columns as the schema has");
    column.typed::<T>().write_batch(&values, None, None)?;
    column.close()
}

fn failed(path: &Path, problem: ParquetError) -> Error {
    Error::io(path, std::io::Error::other(problem))
}
