//! Converts values from PostgreSQL's binary form into JSON.

use std::borrow::Cow;
use std::net::IpAddr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use sqlx::postgres::{PgTypeInfo, PgTypeKind};
use uuid::Uuid;

use super::time;
use crate::call::json::{Mended, parse_strict};
use crate::kinds::sql::rows::float_to_json;

/// How the binary form of a type is read.
#[derive(Debug, Clone)]
pub(super) enum Shape {
    /// A type with short values, and the function that reads them.
    Short(fn(&mut Reader<'_>) -> Result<Value, InvalidBytes>),
    /// All text types, and the labels of enums.
    Text,
    Bytes,
    Json,
    /// A version byte, then the JSON text.
    Jsonb,
    Array(Box<Self>),
}

impl Shape {
    /// The shape of a type; `None` if only the database can write its values, as text.
    pub(super) fn for_type(kind: &PgTypeInfo) -> Option<Self> {
        match kind.kind() {
            PgTypeKind::Array(element) => {
                Self::for_type(element).map(|shape| Self::Array(Box::new(shape)))
            }
            PgTypeKind::Enum(_) => Some(Self::Text),
            PgTypeKind::Domain(of) => Self::for_type(of),
            PgTypeKind::Simple | PgTypeKind::Pseudo => Self::for_number(kind.oid()?.0),
            PgTypeKind::Composite(_) | PgTypeKind::Range(_) => None,
        }
    }

    /// The shape of a built-in type. These have the same numbers in every database (pg_type.dat).
    fn for_number(number: u32) -> Option<Self> {
        Some(match number {
            // bool
            16 => Self::Short(|reader| Ok((reader.read_array::<1>()? != [0]).into())),
            17 => Self::Bytes,
            // The types "char", name, text, xml, unknown, bpchar and varchar.
            18 | 19 | 25 | 142 | 705 | 1042 | 1043 => Self::Text,
            // int8, int2, int4, oid
            20 => Self::Short(|reader| Ok(reader.read_i64()?.into())),
            21 => Self::Short(|reader| Ok(reader.read_i16()?.into())),
            23 => Self::Short(|reader| Ok(reader.read_i32()?.into())),
            26 => Self::Short(|reader| Ok(u32::from_be_bytes(reader.read_array()?).into())),
            114 => Self::Json,
            // cidr, inet
            650 | 869 => Self::Short(|reader| Ok(decode_address(reader)?.into())),
            // float4, float8
            700 => Self::Short(decode_single),
            701 => {
                Self::Short(|reader| Ok(float_to_json(f64::from_be_bytes(reader.read_array()?))))
            }
            // date, time, timestamp, timestamptz
            1082 => Self::Short(|reader| Ok(time::format_date(reader.read_i32()?).into())),
            1083 => Self::Short(|reader| Ok(time::format_time(reader.read_i64()?).into())),
            1114 => Self::Short(|reader| Ok(time::format_timestamp(reader.read_i64()?, "").into())),
            1184 => {
                Self::Short(|reader| Ok(time::format_timestamp(reader.read_i64()?, "Z").into()))
            }
            // interval
            1186 => Self::Short(|reader| {
                let (micros, days) = (reader.read_i64()?, reader.read_i32()?);
                Ok(time::format_interval(micros, days, reader.read_i32()?).into())
            }),
            // timetz
            1266 => Self::Short(|reader| {
                let time = time::format_time(reader.read_i64()?);
                Ok((time + &time::format_offset(reader.read_i32()?)).into())
            }),
            // numeric
            1700 => Self::Short(|reader| Ok(decode_numeric(reader)?.into())),
            // void, the type of functions without a result
            2278 => Self::Short(|_| Ok(Value::Null)),
            // uuid
            2950 => {
                Self::Short(|reader| Ok(Uuid::from_bytes(reader.read_array()?).to_string().into()))
            }
            3802 => Self::Jsonb,
            _ => return None,
        })
    }
}

/// The error for bytes that do not fit their type.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the bytes do not match the type")]
pub(super) struct InvalidBytes;

/// The value as JSON. A json value that our JSON cannot hold exactly becomes its text, and
/// `inexact` is called.
pub(super) fn decode_value(
    bytes: &[u8],
    shape: &Shape,
    inexact: &mut dyn FnMut(),
) -> Result<Value, InvalidBytes> {
    let mut reader = Reader(bytes);
    Ok(match shape {
        Shape::Short(read) => read(&mut reader)?,
        Shape::Text => decode_text(bytes)?.into(),
        Shape::Bytes => BASE64_STANDARD.encode(bytes).into(),
        Shape::Json => decode_json(decode_text(bytes)?, inexact),
        Shape::Jsonb => decode_json(
            decode_text(bytes.strip_prefix(&[1]).ok_or(InvalidBytes)?)?,
            inexact,
        ),
        Shape::Array(element) => decode_array(&mut reader, element, inexact)?,
    })
}

/// A single as the shortest text for it reads. A direct conversion to a double would add digits that
/// the database does not have.
fn decode_single(reader: &mut Reader<'_>) -> Result<Value, InvalidBytes> {
    let single = f32::from_be_bytes(reader.read_array()?);
    let double = single.to_string().parse().unwrap_or(f64::from(single));
    Ok(float_to_json(double))
}

fn decode_text(bytes: &[u8]) -> Result<&str, InvalidBytes> {
    std::str::from_utf8(bytes).map_err(|_| InvalidBytes)
}

/// The value; the text if information would be lost. PostgreSQL's numbers have any number of digits,
/// and only one value of a duplicate key would remain.
fn decode_json(text: &str, inexact: &mut dyn FnMut()) -> Value {
    let exact = match Mended::of_result(text.as_bytes()).text {
        Cow::Borrowed(text) => parse_strict(text).ok(),
        Cow::Owned(_) => None,
    };
    exact.unwrap_or_else(|| {
        inexact();
        text.into()
    })
}

/// A numeric: groups of four decimal digits. The first group counts 10000 to the power of `weight`.
fn decode_numeric(reader: &mut Reader<'_>) -> Result<String, InvalidBytes> {
    let (count, weight) = (reader.read_i16()?, i64::from(reader.read_i16()?));
    let (sign, scale) = (
        u16::from_be_bytes(reader.read_array()?),
        usize::from(u16::from_be_bytes(reader.read_array()?)),
    );
    let mut out = match sign {
        0 => String::new(),
        0x4000 => "-".into(),
        0xC000 => return Ok("NaN".into()),
        0xD000 => return Ok("Infinity".into()),
        0xF000 => return Ok("-Infinity".into()),
        _ => return Err(InvalidBytes),
    };
    let groups = (0..count)
        .map(|_| reader.read_i16())
        .collect::<Result<Vec<i16>, InvalidBytes>>()?;
    let group = |power: i64| {
        let at = usize::try_from(weight - power).ok();
        at.and_then(|at| groups.get(at)).copied().unwrap_or(0)
    };
    out.push_str(&group(weight.max(0)).to_string());
    for power in (0..weight.max(0)).rev() {
        out.push_str(&format!("{:04}", group(power)));
    }
    if scale > 0 {
        let digits: String = (1..=scale.div_ceil(4))
            .map(|below| format!("{:04}", group(-(below as i64))))
            .collect();
        out.push('.');
        out.push_str(&digits[..scale]);
    }
    Ok(out)
}

/// An address or a network. The prefix length is omitted for an address whose prefix has all bits.
fn decode_address(reader: &mut Reader<'_>) -> Result<String, InvalidBytes> {
    let [_family, bits, is_network, length] = reader.read_array()?;
    let (address, all) = match length {
        4 => (IpAddr::from(reader.read_array::<4>()?), 32),
        16 => (IpAddr::from(reader.read_array::<16>()?), 128),
        _ => return Err(InvalidBytes),
    };
    Ok(if is_network != 0 || bits != all {
        format!("{address}/{bits}")
    } else {
        address.to_string()
    })
}

/// An array: its dimensions, then all elements in order. The first index of each dimension is
/// dropped, because JSON cannot express it.
fn decode_array(
    reader: &mut Reader<'_>,
    element: &Shape,
    inexact: &mut dyn FnMut(),
) -> Result<Value, InvalidBytes> {
    let dimensions = reader.read_i32()?;
    let (_has_nulls, _type) = (reader.read_i32()?, reader.read_i32()?);
    let mut lengths = Vec::new();
    for _ in 0..dimensions {
        lengths.push(usize::try_from(reader.read_i32()?).map_err(|_| InvalidBytes)?);
        let _first_index = reader.read_i32()?;
    }
    if lengths.is_empty() {
        Ok(Value::Array(Vec::new()))
    } else {
        decode_dimension(reader, &lengths, element, inexact)
    }
}

fn decode_dimension(
    reader: &mut Reader<'_>,
    lengths: &[usize],
    element: &Shape,
    inexact: &mut dyn FnMut(),
) -> Result<Value, InvalidBytes> {
    let Some((length, inner)) = lengths.split_first() else {
        return Ok(match usize::try_from(reader.read_i32()?) {
            Ok(length) => decode_value(reader.read_bytes(length)?, element, inexact)?,
            // A length of -1 means NULL.
            Err(_) => Value::Null,
        });
    };
    (0..*length)
        .map(|_| decode_dimension(reader, inner, element, inexact))
        .collect::<Result<Vec<_>, _>>()
        .map(Value::Array)
}

pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn read_array<const N: usize>(&mut self) -> Result<[u8; N], InvalidBytes> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(InvalidBytes)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn read_bytes(&mut self, length: usize) -> Result<&'a [u8], InvalidBytes> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(InvalidBytes)?;
        self.0 = rest;
        Ok(taken)
    }

    fn read_i16(&mut self) -> Result<i16, InvalidBytes> {
        Ok(i16::from_be_bytes(self.read_array()?))
    }

    fn read_i32(&mut self) -> Result<i32, InvalidBytes> {
        Ok(i32::from_be_bytes(self.read_array()?))
    }

    fn read_i64(&mut self) -> Result<i64, InvalidBytes> {
        Ok(i64::from_be_bytes(self.read_array()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(number: u32) -> Shape {
        Shape::for_number(number).unwrap()
    }

    #[test]
    fn too_few_bytes_are_an_error() {
        // bool, int8, numeric, uuid, interval, jsonb
        for number in [16, 20, 1700, 2950, 1186, 3802] {
            assert_eq!(
                decode_value(&[], &shape(number), &mut || ()),
                Err(InvalidBytes),
                "{number}"
            );
        }
        let endless = [[0, 0, 0, 1], [0; 4], [0; 4], [127, 255, 255, 255], [0; 4]].concat();
        assert_eq!(
            decode_value(&endless, &Shape::Array(Box::new(shape(16))), &mut || ()),
            Err(InvalidBytes)
        );
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_decode_or_fail(bytes: Vec<u8>, pick in 0usize..9) {
            // numeric, date, timestamp, interval, timetz, jsonb, float4, text
            let mut shapes = [1700, 1082, 1114, 1186, 1266, 3802, 700, 25].map(shape).to_vec();
            shapes.push(Shape::Array(Box::new(shape(1700))));
            let _ = decode_value(&bytes, &shapes[pick], &mut || ());
        }
    }

    #[test]
    fn inexact_json_becomes_text() {
        let decode = |text: &str| {
            let mut is_inexact = false;
            let value = decode_json(text, &mut || is_inexact = true);
            assert_eq!(is_inexact, value == text, "{text}");
            is_inexact
        };
        for exact in [
            "{\"a\": [1, -2.50, 9223372036854775807, 0.1, 1e22], \"12.345678901234567890\": \"1e999\"}",
            "18446744073709551615",
            "59.913330000000002",
            "null",
        ] {
            assert!(!decode(exact), "{exact}");
        }
        for inexact in [
            "12345678901234567890123",
            "[0.12345678901234567890]",
            "1e400",
            "{\"a\": 1, \"a\": 2}",
            "9007199254740993.0",
        ] {
            assert!(decode(inexact), "{inexact}");
        }
    }
}
