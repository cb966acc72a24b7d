//! Binary formats: SciPy, MATLAB and Parquet files, built here byte by byte.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::path::PathBuf;

use fastvae::data::{Interactions, ReadOptions, read};
use fastvae::internals::data::read_with_report;

fn file(folder: &tempfile::TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn rows_of(name: &str, bytes: &[u8]) -> Interactions {
    let folder = tempfile::tempdir().unwrap();
    read(file(&folder, name, bytes), &ReadOptions::default()).unwrap()
}

fn error_of(name: &str, bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    read(file(&folder, name, bytes), &ReadOptions::default()).unwrap_err().to_string()
}

#[track_caller]
fn assert_says(error: &str, parts: &[&str]) {
    for part in parts {
        assert!(error.contains(part), "`{part}` is not in: {error}");
    }
}

fn deflated(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zipped(members: &[(&str, Vec<u8>)], method: u16) -> Vec<u8> {
    let (mut all, mut directory) = (Vec::new(), Vec::new());
    for (name, bytes) in members {
        let data = if method == 8 { deflated(bytes) } else { bytes.clone() };
        let offset = all.len() as u32;
        let mut sizes = Vec::new();
        sizes.extend_from_slice(&[0; 4]);
        sizes.extend_from_slice(&(data.len() as u32).to_le_bytes());
        sizes.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        sizes.extend_from_slice(&(name.len() as u16).to_le_bytes());
        let mut common = vec![20, 0, 0, 0];
        common.extend_from_slice(&method.to_le_bytes());
        common.extend_from_slice(&[0; 4]);
        common.extend_from_slice(&sizes);
        all.extend_from_slice(b"PK\x03\x04");
        all.extend_from_slice(&common);
        all.extend_from_slice(&[0, 0]);
        all.extend_from_slice(name.as_bytes());
        all.extend_from_slice(&data);
        directory.extend_from_slice(b"PK\x01\x02\x14\x00");
        directory.extend_from_slice(&common);
        directory.extend_from_slice(&[0; 12]);
        directory.extend_from_slice(&offset.to_le_bytes());
        directory.extend_from_slice(name.as_bytes());
    }
    let start = all.len() as u32;
    all.extend_from_slice(&directory);
    all.extend_from_slice(b"PK\x05\x06\0\0\0\0");
    all.extend_from_slice(&(members.len() as u16).to_le_bytes());
    all.extend_from_slice(&(members.len() as u16).to_le_bytes());
    all.extend_from_slice(&(directory.len() as u32).to_le_bytes());
    all.extend_from_slice(&start.to_le_bytes());
    all.extend_from_slice(&[0, 0]);
    all
}

fn npy(kind: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let mut header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}");
    while (10 + header.len() + 1) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut all = b"\x93NUMPY\x01\x00".to_vec();
    all.extend_from_slice(&(header.len() as u16).to_le_bytes());
    all.extend_from_slice(header.as_bytes());
    all.extend_from_slice(data);
    all
}

fn ints(values: &[i32]) -> Vec<u8> {
    let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    npy("<i4", &format!("({},)", values.len()), &data)
}

fn longs(values: &[i64]) -> Vec<u8> {
    let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    npy("<i8", &format!("({},)", values.len()), &data)
}

fn doubles(values: &[f64]) -> Vec<u8> {
    let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    npy("<f8", &format!("({},)", values.len()), &data)
}

/// 3 users x 4 items: (0, 1), (0, 3), (2, 0).
fn csr(data: Vec<u8>) -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("indices.npy", ints(&[1, 3, 0])),
        ("indptr.npy", ints(&[0, 2, 2, 3])),
        ("format.npy", npy("|S3", "()", b"csr")),
        ("shape.npy", longs(&[3, 4])),
        ("data.npy", data),
    ]
}

#[test]
fn scipy_rows_columns_and_coordinates_are_read() {
    for method in [0, 8] {
        let rows = rows_of("m.npz", &zipped(&csr(doubles(&[1.0, 2.5, 1.0])), method));
        assert_eq!((rows.offsets(), rows.items()), (&[0, 2, 2, 3][..], &[1, 3, 0][..]));
        assert_eq!(rows.weights(), Some(&[1.0, 2.5, 1.0][..]));
        assert_eq!((rows.n_users(), rows.n_items()), (3, 4));
    }
    let ones = rows_of("m.npz", &zipped(&csr(npy("|b1", "(3,)", &[1, 1, 1])), 8));
    assert!(ones.weights().is_none());

    let csc = vec![
        ("indices.npy", ints(&[2, 0, 0])),
        ("indptr.npy", longs(&[0, 1, 2, 2, 3])),
        ("format.npy", npy("<U3", "()", b"c\0\0\0s\0\0\0c\0\0\0")),
        ("shape.npy", longs(&[3, 4])),
        ("data.npy", ints(&[1, 1, 1])),
    ];
    assert_eq!(rows_of("m.npz", &zipped(&csc, 8)).items(), ones.items());
    let coo = vec![
        ("row.npy", ints(&[2, 0, 0])),
        ("col.npy", longs(&[0, 3, 1])),
        ("format.npy", npy("|S3", "()", b"coo")),
        ("shape.npy", longs(&[3, 4])),
        ("data.npy", npy("<f4", "(3,)", &[0, 0, 128, 63, 0, 0, 128, 63, 0, 0, 128, 63])),
    ];
    assert_eq!(rows_of("m.npz", &zipped(&coo, 0)).items(), ones.items());
}

#[test]
fn damaged_scipy_files_are_refused() {
    let whole = zipped(&csr(doubles(&[1.0, 2.5, 1.0])), 8);
    assert_says(&error_of("m.npz", &whole[..whole.len() / 2]), &["m.npz", "list of members", "save_npz"]);
    let mut members = csr(doubles(&[1.0, 1.0, 1.0]));
    members[0].1 = ints(&[1, 9, 0]);
    assert_says(&error_of("m.npz", &zipped(&members, 0)), &["`indices` contradicts"]);
    members[0].1 = ints(&[1, -1, 0]);
    assert_says(&error_of("m.npz", &zipped(&members, 0)), &["`indices`", "out of range"]);
    members[0].1 = npy("<c8", "(3,)", &[0; 24]);
    assert_says(&error_of("m.npz", &zipped(&members, 0)), &["`<c8` is not read"]);
    members[0].1 = npy("<i4", "(999999999,)", &[0; 24]);
    assert_says(&error_of("m.npz", &zipped(&members, 0)), &["`indices` ends too early"]);
    assert_says(&error_of("m.npz", &zipped(&members[..2], 0)), &["no array `format`", "indptr.npy"]);
    let mut members = csr(doubles(&[1.0, f64::NAN, 1.0]));
    assert_says(&error_of("m.npz", &zipped(&members, 0)), &["weight is NaN"]);
    members[4].1 = doubles(&[2.0]);
    assert_says(&error_of("m.npz", &zipped(&members, 0)), &["`data` contradicts"]);
}

fn element(kind: u32, data: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    if !data.is_empty() && data.len() <= 4 {
        all.extend_from_slice(&(kind | (data.len() as u32) << 16).to_le_bytes());
        all.extend_from_slice(data);
        all.resize(8, 0);
    } else {
        all.extend_from_slice(&kind.to_le_bytes());
        all.extend_from_slice(&(data.len() as u32).to_le_bytes());
        all.extend_from_slice(data);
        all.resize(all.len().next_multiple_of(8), 0);
    }
    all
}

fn integers(values: &[i32]) -> Vec<u8> {
    element(5, &values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>())
}

fn mat(variables: &[Vec<u8>]) -> Vec<u8> {
    let mut all = b"MATLAB 5.0 MAT-file".to_vec();
    all.resize(124, b' ');
    all.extend_from_slice(&[0, 1]);
    all.extend_from_slice(b"IM");
    for variable in variables {
        all.extend_from_slice(variable);
    }
    all
}

/// The same 3 x 4 matrix; `class` 5 is sparse.
fn variable(name: &str, class: u8, values: Vec<u8>) -> Vec<u8> {
    let mut body = element(6, &[class, 0, 0, 0, 3, 0, 0, 0]);
    body.extend(integers(&[3, 4]));
    body.extend(element(1, name.as_bytes()));
    body.extend(integers(&[2, 0, 0]));
    body.extend(integers(&[0, 1, 2, 2, 3]));
    body.extend(values);
    element(14, &body)
}

fn compressed(variable: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(variable).unwrap();
    let data = encoder.finish().unwrap();
    // Compressed elements are the only ones without padding.
    let mut all = 15u32.to_le_bytes().to_vec();
    all.extend_from_slice(&(data.len() as u32).to_le_bytes());
    all.extend_from_slice(&data);
    all
}

#[test]
fn matlab_files_are_read_plain_and_compressed() {
    let ones = variable("data", 5, element(2, &[1, 1, 1]));
    let weights = variable("w", 5, element(9, &[1.0f64, 3.0, 1.0].map(f64::to_le_bytes).concat()));
    let dense = variable("dense", 6, element(2, &[1, 1, 1]));
    for (bytes, expected) in [
        (mat(std::slice::from_ref(&ones)), None),
        (mat(&[compressed(&ones)]), None),
        (mat(&[compressed(&dense), compressed(&weights), compressed(&ones)]), None),
        (mat(&[compressed(&dense), compressed(&weights)]), Some(&[1.0, 3.0, 1.0][..])),
    ] {
        let rows = rows_of("m.mat", &bytes);
        assert_eq!((rows.offsets(), rows.items()), (&[0, 2, 2, 3][..], &[1, 3, 0][..]));
        assert_eq!(rows.weights().map(<[f32]>::len), expected.map(<[f64]>::len));
    }
}

#[test]
fn other_matlab_files_are_refused_with_a_way_out() {
    let sparse = |name| variable(name, 5, element(2, &[1, 1, 1]));
    let dense = variable("ratings", 6, element(2, &[1, 1, 1]));
    assert_says(&error_of("m.mat", &mat(&[dense])), &["no sparse matrix", "ratings", "`data`"]);
    assert_says(
        &error_of("m.mat", &mat(&[sparse("a"), sparse("b")])),
        &["2 sparse matrices: a, b", "`data`"],
    );
    let mut big = mat(&[sparse("data")]);
    big[126..128].copy_from_slice(b"MI");
    assert_says(&error_of("m.mat", &big), &["big endian"]);
    assert_says(&error_of("m.mat", b"\x89HDF\r\n\x1a\n0000"), &["7.3", "-v7"]);
    let mut new = mat(&[sparse("data")]);
    new[..10].copy_from_slice(b"MATLAB 7.3");
    assert_says(&error_of("m.mat", &new), &["7.3", "-v7"]);
    assert_says(&error_of("m.mat", b"not a mat file"), &["ends too early"]);
    let whole = mat(&[compressed(&sparse("data"))]);
    for cut in [200, whole.len() - 20] {
        assert_says(&error_of("m.mat", &whole[..cut.min(whole.len() - 1)]), &["m.mat", "again"]);
    }
    let outside = {
        let mut body = sparse("data");
        let at = body.windows(12).position(|w| w == [2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap();
        body[at] = 9;
        mat(&[body])
    };
    assert_says(&error_of("m.mat", &outside), &["`data` contradicts its own sizes"]);
}

#[cfg(feature = "parquet")]
mod parquet_files {
    use super::*;
    use parquet::data_type::{
        ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int32Type, Int64Type,
    };
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
    use parquet::schema::parser::parse_message_type;
    use std::sync::Arc;

    type Write = fn(&mut SerializedColumnWriter<'_>);

    fn column<T: DataType>(column: &mut SerializedColumnWriter<'_>, values: &[T::T], levels: Option<&[i16]>) {
        column.typed::<T>().write_batch(values, levels, None).unwrap();
    }

    fn written(schema: &str, groups: usize, columns: &[Write]) -> Vec<u8> {
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let mut bytes = Vec::new();
        let properties = Arc::new(WriterProperties::builder().build());
        let mut writer = SerializedFileWriter::new(&mut bytes, schema, properties).unwrap();
        for _ in 0..groups {
            let mut group = writer.next_row_group().unwrap();
            for column in columns {
                let mut open = group.next_column().unwrap().unwrap();
                column(&mut open);
                open.close().unwrap();
            }
            group.close().unwrap();
        }
        writer.close().unwrap();
        bytes
    }

    #[test]
    fn integers_strings_and_times_are_read() {
        let bytes = written(
            "message m { required int64 user_id; optional binary item_id (UTF8); required double weight;
             required int64 timestamp (TIMESTAMP_MILLIS); required float rating; }",
            2,
            &[
                |c| column::<Int64Type>(c, &[7, 5, 7], None),
                |c| column::<ByteArrayType>(c, &["a", "0012", "b"].map(ByteArray::from), Some(&[1, 1, 1])),
                |c| column::<DoubleType>(c, &[2.0, 1.0, 0.0], None),
                |c| column::<Int64Type>(c, &[5_000, 6_999, 7_000], None),
                |c| column::<FloatType>(c, &[1.0, 5.0, 4.0], None),
            ],
        );
        let folder = tempfile::tempdir().unwrap();
        let path = file(&folder, "x.parquet", &bytes);
        let (rows, report) = read_with_report(&path, &ReadOptions::default()).unwrap();
        assert_eq!(rows.user_ids().integers(), Some(&[5, 7][..]));
        assert_eq!(rows.item_ids().position("0012"), Some(1));
        assert_eq!((rows.items(), rows.weights()), (&[1, 0][..], Some(&[2.0, 4.0][..])));
        assert_eq!(rows.timestamps(), Some(&[6, 5][..]));
        assert_eq!((report.rows, report.duplicates, report.non_positive_weights), (6, 2, 2));
    }

    #[test]
    fn nulls_floats_and_missing_columns_are_named() {
        let nulls = written(
            "message m { required int32 user; optional int32 item; }",
            1,
            &[|c| column::<Int32Type>(c, &[1, 2], None), |c| column::<Int32Type>(c, &[5], Some(&[1, 0]))],
        );
        assert_says(&error_of("x.parquet", &nulls), &["x.parquet:2:", "`item` has no value"]);
        let floats = written(
            "message m { required double user; required int32 item; }",
            1,
            &[|c| column::<DoubleType>(c, &[1.5, 2.0], None), |c| column::<Int32Type>(c, &[1, 2], None)],
        );
        assert_says(&error_of("x.parquet", &floats), &["column `user` are floats"]);
        let unnamed = written(
            "message m { required int32 a; required int32 b; }",
            1,
            &[|c| column::<Int32Type>(c, &[1, 2], None), |c| column::<Int32Type>(c, &[1, 2], None)],
        );
        assert_says(&error_of("x.parquet", &unnamed), &["no user column among `a`, `b`", "--user-col"]);
        assert_says(&error_of("x.parquet", &unnamed[..unnamed.len() / 2]), &["not readable as Parquet"]);
    }
}
