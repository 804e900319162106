//! Converts values from PostgreSQL's binary form into JSON.

use std::borrow::Cow;
use std::net::IpAddr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::Span;
use jiff::civil::date;
use serde_json::Value;
use sqlx::postgres::{PgTypeInfo, PgTypeKind};
use uuid::Uuid;

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
    pub(super) fn for_number(number: u32) -> Option<Self> {
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
            1082 => Self::Short(|reader| Ok(format_date(reader.read_i32()?).into())),
            1083 => Self::Short(|reader| Ok(format_time(reader.read_i64()?).into())),
            1114 => Self::Short(|reader| Ok(format_timestamp(reader.read_i64()?, "").into())),
            1184 => Self::Short(|reader| Ok(format_timestamp(reader.read_i64()?, "Z").into())),
            // interval
            1186 => Self::Short(|reader| {
                let (micros, days) = (reader.read_i64()?, reader.read_i32()?);
                Ok(format_interval(micros, days, reader.read_i32()?).into())
            }),
            // timetz
            1266 => Self::Short(|reader| {
                let time = format_time(reader.read_i64()?);
                Ok((time + &format_offset(reader.read_i32()?)).into())
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

/// The most dimensions of an array (MAXDIM in PostgreSQL).
const MAX_DIMENSIONS: i32 = 6;

/// An array: its dimensions, then all elements in order. The first index of each dimension is
/// dropped, because JSON cannot express it. A wrong server could ask for any depth, and for any
/// number of arrays without elements.
fn decode_array(
    reader: &mut Reader<'_>,
    element: &Shape,
    inexact: &mut dyn FnMut(),
) -> Result<Value, InvalidBytes> {
    let dimensions = reader.read_i32()?;
    if dimensions > MAX_DIMENSIONS {
        return Err(InvalidBytes);
    }
    let (_has_nulls, _type) = (reader.read_i32()?, reader.read_i32()?);
    let mut lengths = Vec::new();
    for _ in 0..dimensions {
        lengths.push(usize::try_from(reader.read_i32()?).map_err(|_| InvalidBytes)?);
        let _first_index = reader.read_i32()?;
    }
    if lengths.is_empty() || lengths.contains(&0) {
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

/// The days of 400 years, after which the calendar repeats.
const ERA: i64 = 146_097;
const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;

// Dates and times become ISO 8601. Values that ISO 8601 cannot express (infinity, years before year 1)
// are written as PostgreSQL writes them, so that it can read them again.

/// A `date`: days since 2000-01-01.
fn format_date(days: i32) -> String {
    match days {
        i32::MAX => "infinity".into(),
        i32::MIN => "-infinity".into(),
        days => format_with_era(i64::from(days), ""),
    }
}

/// A `timestamp`: microseconds since 2000-01-01. `zone` is appended.
fn format_timestamp(micros: i64, zone: &str) -> String {
    match micros {
        i64::MAX => "infinity".into(),
        i64::MIN => "-infinity".into(),
        micros => format_with_era(
            micros.div_euclid(DAY),
            &format!("T{}{zone}", format_time(micros.rem_euclid(DAY))),
        ),
    }
}

/// A `time`: microseconds since midnight, up to 24:00:00.
fn format_time(micros: i64) -> String {
    let seconds = micros / SECOND;
    format!(
        "{:02}:{:02}:{:02}{}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
        format_fraction(micros % SECOND)
    )
}

/// The offset of a `timetz`, in seconds to the west.
fn format_offset(west: i32) -> String {
    let (sign, seconds) = (if west > 0 { '-' } else { '+' }, west.unsigned_abs());
    let second_part = if seconds % 60 == 0 {
        String::new()
    } else {
        format!(":{:02}", seconds % 60)
    };
    format!(
        "{sign}{:02}:{:02}{second_part}",
        seconds / 3600,
        seconds / 60 % 60
    )
}

/// An `interval`. Each part has its own sign, as in PostgreSQL's `intervalstyle = iso_8601`.
fn format_interval(micros: i64, days: i32, months: i32) -> String {
    match (micros, days, months) {
        (i64::MAX, i32::MAX, i32::MAX) => return "infinity".into(),
        (i64::MIN, i32::MIN, i32::MIN) => return "-infinity".into(),
        (0, 0, 0) => return "PT0S".into(),
        _ => {}
    }
    let part = |count: i64, unit: char| {
        if count == 0 {
            String::new()
        } else {
            format!("{count}{unit}")
        }
    };
    let date = [
        part((months / 12).into(), 'Y'),
        part((months % 12).into(), 'M'),
        part(days.into(), 'D'),
    ]
    .concat();
    let (seconds, rest) = (micros / SECOND % 60, micros % SECOND);
    let sign = if seconds == 0 && rest < 0 { "-" } else { "" };
    let seconds = match (seconds, rest) {
        (0, 0) => String::new(),
        (seconds, rest) => format!("{sign}{seconds}{}S", format_fraction(rest.abs())),
    };
    let time = [
        part(micros / (3600 * SECOND), 'H'),
        part(micros / (60 * SECOND) % 60, 'M'),
        seconds,
    ]
    .concat();
    if time.is_empty() {
        format!("P{date}")
    } else {
        format!("P{date}T{time}")
    }
}

fn format_fraction(micros: i64) -> String {
    if micros == 0 {
        return String::new();
    }
    format!(".{micros:06}").trim_end_matches('0').to_owned()
}

/// A day, followed by `rest`. Years before year 1 are counted backwards and marked `BC`.
fn format_with_era(days: i64, rest: &str) -> String {
    let (year, month, day) = civil_date(days);
    if year > 0 {
        format!("{year:04}-{month:02}-{day:02}{rest}")
    } else {
        format!("{:04}-{month:02}-{day:02}{rest} BC", 1 - year)
    }
}

/// Year, month and day of a day that is counted from 2000-01-01, in the proleptic Gregorian calendar.
/// PostgreSQL has more years than jiff.
fn civil_date(days: i64) -> (i64, i8, i8) {
    let (era, of_era) = (days.div_euclid(ERA), days.rem_euclid(ERA));
    let date = date(2000, 1, 1).saturating_add(Span::new().days(of_era));
    (i64::from(date.year()) + era * 400, date.month(), date.day())
}

#[cfg(test)]
mod tests {
    use jiff::civil::Date;
    use proptest::prelude::*;

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

    #[test]
    fn arrays_of_a_wrong_server_take_no_memory() {
        let array = |lengths: &[i32]| {
            let dimensions = i32::try_from(lengths.len()).unwrap();
            let head = [dimensions, 0, 16].map(i32::to_be_bytes).concat();
            let lengths = lengths.iter().flat_map(|length| [*length, 1]);
            let bytes = [head, lengths.flat_map(i32::to_be_bytes).collect()].concat();
            decode_value(&bytes, &Shape::Array(Box::new(shape(16))), &mut || ())
        };
        assert_eq!(array(&[1; 1_000_000]), Err(InvalidBytes), "depth");
        assert_eq!(array(&[i32::MAX, 0]), Ok(Value::Array(vec![])), "number");
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

    #[test]
    fn dates_and_times_are_iso_8601() {
        assert_eq!(format_date(0), "2000-01-01");
        assert_eq!(format_date(-1), "1999-12-31");
        assert_eq!(format_timestamp(-1, ""), "1999-12-31T23:59:59.999999");
        assert_eq!(format_timestamp(1_500_000, "Z"), "2000-01-01T00:00:01.5Z");
        assert_eq!(format_timestamp(i64::MAX, "Z"), "infinity");
        assert_eq!(format_time(DAY), "24:00:00");
        assert_eq!(
            (
                format_offset(-19_800),
                format_offset(18_000),
                format_offset(0)
            ),
            ("+05:30".into(), "-05:00".into(), "+00:00".into())
        );
    }

    #[test]
    fn intervals_are_iso_8601() {
        for (micros, days, months, want) in [
            (0, 0, 0, "PT0S"),
            (0, 0, 14, "P1Y2M"),
            (0, -3, -14, "P-1Y-2M-3D"),
            (
                4 * 3600 * SECOND + 5 * 60 * SECOND + 6_700_000,
                3,
                0,
                "P3DT4H5M6.7S",
            ),
            (-500_000, 1, 0, "P1DT-0.5S"),
            (-3_661_000_001, 0, 0, "PT-1H-1M-1.000001S"),
        ] {
            assert_eq!(format_interval(micros, days, months), want);
        }
    }

    proptest! {
        #[test]
        fn civil_date_matches_the_calendar_library(days in -4_382_544i64..2_921_939) {
            let day = Date::constant(2000, 1, 1) + Span::new().days(days);
            let (year, month, of_month) = civil_date(days);
            prop_assert_eq!((year, month, of_month), (day.year().into(), day.month(), day.day()));
        }
    }
}
