//! NumPy arrays (`.npy`, versions 1 to 3), read as a stream.

use std::io::{self, Read};

/// The element type of an array and how many it has.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Header {
    /// NumPy's name of the type, such as `<i4`.
    pub(crate) kind: String,
    /// Product of the shape.
    pub(crate) len: u64,
}

impl Header {
    /// Reads the header; the elements follow.
    pub(crate) fn read(input: &mut impl Read) -> io::Result<Self> {
        let mut start = [0; 8];
        input.read_exact(&mut start)?;
        if !start.starts_with(b"\x93NUMPY") {
            return Err(invalid("it is not a NumPy array"));
        }
        let mut size = [0; 4];
        input.read_exact(if start[6] == 1 { &mut size[..2] } else { &mut size[..] })?;
        let mut text = Vec::new();
        input.take(u64::from(u32::from_le_bytes(size))).read_to_end(&mut text)?;
        Self::parse(&String::from_utf8_lossy(&text)).ok_or_else(|| invalid("its header is not understood"))
    }

    /// Parses `{'descr': '<i4', 'fortran_order': False, 'shape': (3,), }`.
    fn parse(text: &str) -> Option<Self> {
        let after = |key: &str| Some(text.split_once(key)?.1.trim_start_matches([':', ' ']));
        let kind = after("'descr'")?.strip_prefix('\'')?.split_once('\'')?.0.to_string();
        let shape = after("'shape'")?.strip_prefix('(')?.split_once(')')?.0;
        let mut len = 1u64;
        for size in shape.split(',').map(str::trim).filter(|size| !size.is_empty()) {
            len = len.checked_mul(size.parse().ok()?)?;
        }
        Some(Self { kind, len })
    }
}

/// An array of numbers, each converted by `from`; `from` refuses a value by returning nothing.
pub(crate) fn numbers<T>(input: &mut impl Read, from: impl Fn(Number) -> Option<T>) -> io::Result<Vec<T>> {
    let header = Header::read(input)?;
    macro_rules! read_as {
        ($type:ty, $variant:ident, $wide:ty) => {
            elements::<T, { size_of::<$type>() }>(input, header.len, |bytes| {
                from(Number::$variant(<$type>::from_le_bytes(bytes) as $wide))
            })
        };
    }
    match header.kind.as_str() {
        "|b1" | "|u1" => read_as!(u8, Integer, i64),
        "|i1" => read_as!(i8, Integer, i64),
        "<i2" => read_as!(i16, Integer, i64),
        "<u2" => read_as!(u16, Integer, i64),
        "<i4" => read_as!(i32, Integer, i64),
        "<u4" => read_as!(u32, Integer, i64),
        "<i8" | "<u8" => read_as!(i64, Integer, i64),
        "<f4" => read_as!(f32, Float, f64),
        "<f8" => read_as!(f64, Float, f64),
        kind => Err(invalid(&format!("its type `{kind}` is not read"))),
    }
}

/// An element of an array.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number {
    Integer(i64),
    Float(f64),
}

/// A short text: NumPy's `|S3` or `<U3`.
pub(crate) fn text(input: &mut impl Read) -> io::Result<String> {
    let header = Header::read(input)?;
    let mut bytes = Vec::new();
    input.take(1024).read_to_end(&mut bytes)?;
    if !header.kind.starts_with("|S") && !header.kind.starts_with("<U") {
        return Err(invalid(&format!("its type `{}` is not text", header.kind)));
    }
    Ok(bytes.into_iter().filter(|&byte| byte != 0).map(char::from).collect())
}

fn elements<T, const SIZE: usize>(
    input: &mut impl Read,
    len: u64,
    from: impl Fn([u8; SIZE]) -> Option<T>,
) -> io::Result<Vec<T>> {
    let mut values = Vec::new();
    let mut buffer = vec![0; SIZE << 13];
    let mut left = len;
    while left > 0 {
        let n = left.min(1 << 13) as usize;
        input.read_exact(&mut buffer[..n * SIZE])?;
        let (chunks, _) = buffer[..n * SIZE].as_chunks::<SIZE>();
        for bytes in chunks {
            values.push(from(*bytes).ok_or_else(|| invalid("it holds a value out of range"))?);
        }
        left -= n as u64;
    }
    Ok(values)
}

fn invalid(problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_understood() {
        let parse = |text| Header::parse(text).map(|header| (header.kind, header.len));
        let some = |kind: &str, len| Some((kind.to_string(), len));
        assert_eq!(parse("{'descr': '<i4', 'fortran_order': False, 'shape': (3,), }"), some("<i4", 3));
        assert_eq!(parse("{'descr': '|S3', 'fortran_order': False, 'shape': (), }"), some("|S3", 1));
        assert_eq!(parse("{'descr': '<f8', 'fortran_order': False, 'shape': (2, 5), }"), some("<f8", 10));
        assert_eq!(parse("{'descr': [('a', '<i4')], 'shape': (3,)}"), None);
    }
}
