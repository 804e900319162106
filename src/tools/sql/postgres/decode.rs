//! Converts values from PostgreSQL's binary form into JSON.

use std::net::IpAddr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use sqlx::postgres::{PgTypeInfo, PgTypeKind};
use uuid::Uuid;

use super::{exact, time};
use crate::tools::sql::rows::float;

/// How the binary form of a type is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shape {
    Bool,
    Int2,
    Int4,
    Int8,
    Oid,
    Float4,
    Float8,
    Numeric,
    /// All text types, and the labels of enums.
    Text,
    Bytes,
    Json,
    /// A version byte, then the JSON text.
    Jsonb,
    Uuid,
    Date,
    Time,
    TimeTz,
    Timestamp,
    TimestampTz,
    Interval,
    /// `inet` and `cidr`.
    Address,
    /// The type of functions without a result.
    Void,
    Array(Box<Self>),
}

impl Shape {
    /// The shape of a type; `None` if only the database can write its values, as text.
    pub(super) fn of(kind: &PgTypeInfo) -> Option<Self> {
        match kind.kind() {
            PgTypeKind::Array(element) => return Self::of(element).map(|shape| Self::Array(Box::new(shape))),
            PgTypeKind::Enum(_) => return Some(Self::Text),
            PgTypeKind::Domain(of) => return Self::of(of),
            PgTypeKind::Simple | PgTypeKind::Pseudo => {}
            PgTypeKind::Composite(_) | PgTypeKind::Range(_) => return None,
        }
        // The built-in types have these numbers in every database (pg_type.dat).
        Some(match kind.oid()?.0 {
            16 => Self::Bool,
            17 => Self::Bytes,
            // The types "char", name, text, xml, unknown, bpchar and varchar.
            18 | 19 | 25 | 142 | 705 | 1042 | 1043 => Self::Text,
            20 => Self::Int8,
            21 => Self::Int2,
            23 => Self::Int4,
            26 => Self::Oid,
            114 => Self::Json,
            650 | 869 => Self::Address,
            700 => Self::Float4,
            701 => Self::Float8,
            1082 => Self::Date,
            1083 => Self::Time,
            1114 => Self::Timestamp,
            1184 => Self::TimestampTz,
            1186 => Self::Interval,
            1266 => Self::TimeTz,
            1700 => Self::Numeric,
            2278 => Self::Void,
            2950 => Self::Uuid,
            3802 => Self::Jsonb,
            _ => return None,
        })
    }
}

/// The error for bytes that do not fit their type.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("its bytes are not those of its type")]
pub(super) struct Garbled;

/// The value as JSON. A json value that our JSON cannot hold exactly becomes its text, and `inexact` is called.
pub(super) fn value(bytes: &[u8], shape: &Shape, inexact: &mut dyn FnMut()) -> Result<Value, Garbled> {
    let mut reader = Reader(bytes);
    Ok(match shape {
        Shape::Bool => (reader.take::<1>()? != [0]).into(),
        Shape::Int2 => i16::from_be_bytes(reader.take()?).into(),
        Shape::Int4 => reader.int()?.into(),
        Shape::Int8 => reader.long()?.into(),
        Shape::Oid => u32::from_be_bytes(reader.take()?).into(),
        Shape::Float4 => {
            let single = f32::from_be_bytes(reader.take()?);
            // The shortest text for this number. A direct conversion to a double would add digits that the database
            // does not have.
            float(if single.is_finite() { single.to_string().parse().unwrap_or(single.into()) } else { single.into() })
        }
        Shape::Float8 => float(f64::from_be_bytes(reader.take()?)),
        Shape::Numeric => numeric(&mut reader)?.into(),
        Shape::Text => text(bytes)?.into(),
        Shape::Bytes => BASE64_STANDARD.encode(bytes).into(),
        Shape::Json => json(text(bytes)?, inexact),
        Shape::Jsonb => json(text(bytes.strip_prefix(&[1]).ok_or(Garbled)?)?, inexact),
        Shape::Uuid => Uuid::from_bytes(reader.take()?).to_string().into(),
        Shape::Date => time::date(reader.int()?).into(),
        Shape::Time => time::time(reader.long()?).into(),
        Shape::TimeTz => {
            let time = time::time(reader.long()?);
            (time + &time::offset(reader.int()?)).into()
        }
        Shape::Timestamp => time::timestamp(reader.long()?, "").into(),
        Shape::TimestampTz => time::timestamp(reader.long()?, "Z").into(),
        Shape::Interval => time::interval(reader.long()?, reader.int()?, reader.int()?).into(),
        Shape::Address => address(&mut reader)?.into(),
        Shape::Void => Value::Null,
        Shape::Array(element) => array(&mut reader, element, inexact)?,
    })
}

fn text(bytes: &[u8]) -> Result<&str, Garbled> {
    std::str::from_utf8(bytes).map_err(|_| Garbled)
}

fn json(text: &str, inexact: &mut dyn FnMut()) -> Value {
    exact::json(text).unwrap_or_else(|| {
        inexact();
        text.into()
    })
}

/// A numeric: groups of four decimal digits. The first group counts 10000 to the power of `weight`.
fn numeric(reader: &mut Reader<'_>) -> Result<String, Garbled> {
    let (count, weight) = (reader.short()?, i64::from(reader.short()?));
    let (sign, scale) = (u16::from_be_bytes(reader.take()?), usize::from(u16::from_be_bytes(reader.take()?)));
    let mut out = match sign {
        0 => String::new(),
        0x4000 => "-".into(),
        0xC000 => return Ok("NaN".into()),
        0xD000 => return Ok("Infinity".into()),
        0xF000 => return Ok("-Infinity".into()),
        _ => return Err(Garbled),
    };
    let groups = (0..count).map(|_| reader.short()).collect::<Result<Vec<i16>, Garbled>>()?;
    let group = |power: i64| {
        let at = usize::try_from(weight - power).ok();
        at.and_then(|at| groups.get(at)).copied().unwrap_or(0)
    };
    out.push_str(&group(weight.max(0)).to_string());
    for power in (0..weight.max(0)).rev() {
        out.push_str(&format!("{:04}", group(power)));
    }
    if scale > 0 {
        let digits: String = (1..=scale.div_ceil(4)).map(|below| format!("{:04}", group(-(below as i64)))).collect();
        out.push('.');
        out.push_str(&digits[..scale]);
    }
    Ok(out)
}

/// An address or a network. The prefix length is omitted for an address whose prefix has all bits.
fn address(reader: &mut Reader<'_>) -> Result<String, Garbled> {
    let [_family, bits, is_network, length] = reader.take()?;
    let (address, all) = match length {
        4 => (IpAddr::from(reader.take::<4>()?), 32),
        16 => (IpAddr::from(reader.take::<16>()?), 128),
        _ => return Err(Garbled),
    };
    Ok(if is_network != 0 || bits != all { format!("{address}/{bits}") } else { address.to_string() })
}

/// An array: its dimensions, then all elements in order. The first index of each dimension is dropped, because JSON
/// cannot express it.
fn array(reader: &mut Reader<'_>, element: &Shape, inexact: &mut dyn FnMut()) -> Result<Value, Garbled> {
    let dimensions = reader.int()?;
    let (_has_nulls, _type) = (reader.int()?, reader.int()?);
    let mut lengths = Vec::new();
    for _ in 0..dimensions {
        lengths.push(usize::try_from(reader.int()?).map_err(|_| Garbled)?);
        let _first_index = reader.int()?;
    }
    if lengths.is_empty() { Ok(Value::Array(Vec::new())) } else { level(reader, &lengths, element, inexact) }
}

fn level(
    reader: &mut Reader<'_>,
    lengths: &[usize],
    element: &Shape,
    inexact: &mut dyn FnMut(),
) -> Result<Value, Garbled> {
    let Some((length, inner)) = lengths.split_first() else {
        return Ok(match usize::try_from(reader.int()?) {
            Ok(length) => value(reader.bytes(length)?, element, inexact)?,
            // A length of -1 means NULL.
            Err(_) => Value::Null,
        });
    };
    (0..*length).map(|_| level(reader, inner, element, inexact)).collect::<Result<Vec<_>, _>>().map(Value::Array)
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Garbled> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Garbled)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn bytes(&mut self, length: usize) -> Result<&'a [u8], Garbled> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Garbled)?;
        self.0 = rest;
        Ok(taken)
    }

    fn short(&mut self) -> Result<i16, Garbled> {
        Ok(i16::from_be_bytes(self.take()?))
    }

    fn int(&mut self) -> Result<i32, Garbled> {
        Ok(i32::from_be_bytes(self.take()?))
    }

    fn long(&mut self) -> Result<i64, Garbled> {
        Ok(i64::from_be_bytes(self.take()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_too_few_are_no_value() {
        for shape in [Shape::Bool, Shape::Int8, Shape::Numeric, Shape::Uuid, Shape::Interval, Shape::Jsonb] {
            assert_eq!(value(&[], &shape, &mut || ()), Err(Garbled), "{shape:?}");
        }
        let endless = [[0, 0, 0, 1], [0; 4], [0; 4], [127, 255, 255, 255], [0; 4]].concat();
        assert_eq!(value(&endless, &Shape::Array(Box::new(Shape::Bool)), &mut || ()), Err(Garbled));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_value_or_none(bytes: Vec<u8>, pick in 0usize..9) {
            let shapes = [Shape::Numeric, Shape::Date, Shape::Timestamp, Shape::Interval, Shape::TimeTz, Shape::Jsonb,
                Shape::Float4, Shape::Text, Shape::Array(Box::new(Shape::Numeric))];
            let _ = value(&bytes, &shapes[pick], &mut || ());
        }
    }
}
