//! Tests: values and parameters of every type.

use super::*;

#[tokio::test]
async fn every_type_converts_to_json() {
    let Some(shop) = Shop::new("every_type").await else {
        return;
    };
    shop.run(
        "create type mood as enum ('sad', 'happy'); create domain even as int check (value % 2 = 0);
         create type pair as (a int, b text)",
    )
    .await;
    for (expression, want) in [
        ("true", json!(true)),
        ("(-32768)::int2", json!(-32768)),
        ("2147483647", json!(2_147_483_647)),
        ("9223372036854775807", json!(i64::MAX)),
        ("(-9223372036854775808)::int8", json!(i64::MIN)),
        ("0.1::float4", json!(0.1)),
        ("16777217::float4", json!(16777216.0)),
        ("0.1::float8", json!(0.1)),
        ("'NaN'::float8", json!("NaN")),
        ("'-inf'::float4", json!("-Infinity")),
        ("12.50::numeric", json!("12.50")),
        ("0::numeric", json!("0")),
        ("-0.0001::numeric", json!("-0.0001")),
        ("10000::numeric", json!("10000")),
        ("100000000.00010::numeric", json!("100000000.00010")),
        (
            "123456789012345678901234567890.123456789::numeric",
            json!("123456789012345678901234567890.123456789"),
        ),
        ("1e-20::numeric", json!("0.00000000000000000001")),
        ("'NaN'::numeric", json!("NaN")),
        ("'-Infinity'::numeric", json!("-Infinity")),
        ("sum(x) from (values (1::int8), (2)) v (x)", json!("3")),
        ("'ü'::text", json!("ü")),
        ("''::varchar", json!("")),
        ("'ab'::char(4)", json!("ab  ")),
        ("'x'::\"char\"", json!("x")),
        ("'n'::name", json!("n")),
        ("'\\x00ff'::bytea", json!("AP8=")),
        (
            "'{\"a\": [1, 9223372036854775807, null]}'::json",
            json!({"a": [1, i64::MAX, null]}),
        ),
        ("'{\"a\": 1.50}'::jsonb", json!({"a": 1.5})),
        ("'\"text\"'::jsonb", json!("text")),
        ("'null'::jsonb", json!(null)),
        (
            "'[12345678901234567890123]'::jsonb",
            json!("[12345678901234567890123]"),
        ),
        (
            "'{\"a\": 1, \"a\": 2}'::json",
            json!("{\"a\": 1, \"a\": 2}"),
        ),
        (
            "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid",
            json!("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ),
        ("'2024-02-29'::date", json!("2024-02-29")),
        ("'infinity'::date", json!("infinity")),
        ("'0044-03-15 BC'::date", json!("0044-03-15 BC")),
        ("'294276-12-31'::timestamp", json!("294276-12-31T00:00:00")),
        (
            "'2024-02-29 12:34:56.789'::timestamp",
            json!("2024-02-29T12:34:56.789"),
        ),
        (
            "'2024-02-29 12:34:56+02'::timestamptz",
            json!("2024-02-29T10:34:56Z"),
        ),
        ("'-infinity'::timestamptz", json!("-infinity")),
        ("'12:34:56.5'::time", json!("12:34:56.5")),
        ("'24:00'::time", json!("24:00:00")),
        ("'12:34:56+05:30'::timetz", json!("12:34:56+05:30")),
        (
            "'1 year 2 mons -3 days 04:05:06.7'::interval",
            json!("P1Y2M-3DT4H5M6.7S"),
        ),
        ("'0'::interval", json!("PT0S")),
        ("'192.168.0.1/24'::inet", json!("192.168.0.1/24")),
        ("'10.0.0.0/8'::cidr", json!("10.0.0.0/8")),
        ("'10.0.0.1/32'::cidr", json!("10.0.0.1/32")),
        ("'10.0.0.1'::inet", json!("10.0.0.1")),
        ("'2001:db8::1/64'::inet", json!("2001:db8::1/64")),
        ("array['::ffff:1.2.3.4'::inet]", json!(["::ffff:1.2.3.4"])),
        ("'08:00:2b:01:02:03'::macaddr", json!("08:00:2b:01:02:03")),
        ("'happy'::mood", json!("happy")),
        ("2::even", json!(2)),
        ("(1, 'x y')::pair", json!("(1,\"x y\")")),
        ("row(1, null)", json!("(1,)")),
        ("'[1,5)'::int4range", json!("[1,5)")),
        (
            "'{[1,2),[5,7)}'::int4multirange::text",
            json!("{[1,2),[5,7)}"),
        ),
        ("'(1,2)'::point", json!("(1,2)")),
        ("B'101'", json!("101")),
        ("12.3::money", json!("$12.30")),
        ("'a & b'::tsquery", json!("'a' & 'b'")),
        ("'customers'::regclass", json!("customers")),
        ("26::oid", json!(26)),
        ("'<a/>'::xml", json!("<a/>")),
        ("null::int", json!(null)),
        ("null::point", json!(null)),
        ("array[1, null, 3]", json!([1, null, 3])),
        ("'{}'::text[]", json!([])),
        ("'{{1,2},{3,4}}'::int8[]", json!([[1, 2], [3, 4]])),
        ("'[2:3]={7,8}'::int[]", json!([7, 8])),
        (
            "array['2024-01-01'::date, null]",
            json!(["2024-01-01", null]),
        ),
        ("array['{\"a\":1}'::jsonb]", json!([{"a": 1}])),
        ("array[1.10::numeric]", json!(["1.10"])),
        ("array['sad'::mood]", json!(["sad"])),
        ("array['(1,2)'::point, null]", json!(["(1,2)", null])),
        ("array[(1, 'x')::pair]", json!(["(1,x)"])),
        ("pg_sleep(0)", json!(null)),
    ] {
        let (head, tail) = expression.split_once(" from ").unwrap_or((expression, ""));
        let from = if tail.is_empty() {
            String::new()
        } else {
            format!(" from {tail}")
        };
        let statement = format!("select {head} as v{from}");
        assert_eq!(
            result_data(shop.run_read(&statement, json!({})).await),
            json!([{"v": want}]),
            "{expression}"
        );
    }
    let (_, warnings) = call(
        &shop.tool("select '[1e400]'::jsonb as v, 1 as w", Effect::Read),
        json!({}),
    )
    .await;
    assert!(
        warnings[0].starts_with("column `v` holds JSON that has no exact form here"),
        "{warnings:?}"
    );
}

#[tokio::test]
async fn arguments_convert_to_parameter_types() {
    let Some(shop) = Shop::new("arguments").await else {
        return;
    };
    shop.run("create type mood as enum ('sad', 'happy'); create schema \"Odd\"; create domain \"Odd\".even as int check (value % 2 = 0)")
        .await;
    for (kind, argument, want) in [
        ("int2", json!(-5), json!(-5)),
        ("int4", json!(2.0), json!(2)),
        ("int8", json!(i64::MAX), json!(i64::MAX)),
        ("int8", json!("7"), json!(7)),
        ("numeric", json!(0.1), json!("0.1")),
        (
            "numeric",
            json!("12345678901234567890.10"),
            json!("12345678901234567890.10"),
        ),
        ("float8", json!(1), json!(1.0)),
        ("float8", json!("NaN"), json!("NaN")),
        (
            "text",
            json!("x' or 1=1; drop table customers --"),
            json!("x' or 1=1; drop table customers --"),
        ),
        ("text", json!(5), json!("5")),
        ("text", json!("\\x41 $1 :a"), json!("\\x41 $1 :a")),
        ("bool", json!(true), json!(true)),
        ("date", json!("2024-02-29"), json!("2024-02-29")),
        (
            "timestamptz",
            json!("2024-02-29T12:00:00+02:00"),
            json!("2024-02-29T10:00:00Z"),
        ),
        (
            "timestamptz",
            json!("2024-02-29T12:00:00"),
            json!("2024-02-29T12:00:00Z"),
        ),
        ("interval", json!("P1DT2H"), json!("P1DT2H")),
        (
            "uuid",
            json!("A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"),
            json!("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ),
        ("jsonb", json!({"k": [1, null]}), json!({"k": [1, null]})),
        ("jsonb", json!("text"), json!("text")),
        ("json", json!([1]), json!([1])),
        ("bytea", json!("AP8="), json!("AP8=")),
        ("inet", json!("10.0.0.1"), json!("10.0.0.1")),
        ("mood", json!("happy"), json!("happy")),
        ("\"Odd\".even", json!(4), json!(4)),
        ("int4range", json!("[1,3)"), json!("[1,3)")),
        ("int[]", json!([1, null, 3]), json!([1, null, 3])),
        (
            "text[]",
            json!(["a,b", "\"", "NULL", "{}", "\\", null]),
            json!(["a,b", "\"", "NULL", "{}", "\\", null]),
        ),
        ("int[]", json!([[1, 2], [3, 4]]), json!([[1, 2], [3, 4]])),
        ("jsonb[]", json!([{"a": 1}, [2]]), json!([{"a": 1}, [2]])),
        ("mood[]", json!(["sad"]), json!(["sad"])),
        ("int", json!(null), json!(null)),
    ] {
        let statement = format!("select :a::{kind} as v");
        assert_eq!(
            result_data(shop.run_read(&statement, json!({"a": argument})).await),
            json!([{"v": want}]),
            "{kind} {argument}"
        );
    }
    let some = "select name from customers where id = any(:ids) and (:name is null or name = :name) order by id";
    assert_eq!(
        result_data(shop.run_read(some, json!({"ids": [1, 3]})).await),
        json!([{"name": "Ann"}, {"name": "Cy"}])
    );
    assert_eq!(
        result_data(
            shop.run_read(some, json!({"ids": [1, 3], "name": "Cy"}))
                .await
        ),
        json!([{"name": "Cy"}])
    );
    let grouped = "select date_trunc(:a, since) as since, count(*) as n from customers group by date_trunc(:a, since)";
    let answer = shop.run_read(grouped, json!({"a": "year"})).await;
    assert_eq!(
        result_data(answer),
        json!([{"since": "2024-01-01T00:00:00Z", "n": 3}]),
        "both are the same"
    );
    let both = "select :doc::jsonb as j, :doc::text as t, :n is null as missing, :ids is null or 3 = any(:ids) as listed";
    let answer = shop.run_read(both, json!({"doc": "x", "ids": [3]})).await;
    assert_eq!(
        result_data(answer),
        json!([{"j": "x", "t": "x", "missing": true, "listed": true}])
    );
    let typed = "select id from customers where revenue > :a and since < :b and year = :n limit :n";
    let answer = shop
        .run_read(
            typed,
            json!({"a": "99999.98", "b": "2025-01-01", "n": 2024}),
        )
        .await;
    assert_eq!(result_data(answer), json!([{"id": 2}]));

    for (kind, argument, want) in [
        ("int2", json!(40000), "out of range"),
        (
            "int4",
            json!(2.5),
            "invalid input syntax for type integer: \"2.5\"",
        ),
        ("int4", json!("abc"), "invalid input syntax"),
        (
            "date",
            json!("2024-02-30"),
            "date/time field value out of range",
        ),
        ("uuid", json!("no"), "invalid input syntax for type uuid"),
        ("mood", json!("angry"), "invalid input value for enum mood"),
        ("\"Odd\".even", json!(3), "violates check constraint"),
        (
            "bytea",
            json!("no base64!"),
            "base64 is expected here: the statement expects bytea",
        ),
        (
            "int[]",
            json!(5),
            "a list is expected here: the statement expects integer[]",
        ),
        ("int[]", json!([1, "x"]), "invalid input syntax"),
        ("int", json!([1]), "one value is expected here"),
        ("text", json!("a\0b"), "cannot contain NUL"),
        ("jsonb", json!("a\0b"), "unsupported Unicode escape"),
    ] {
        let statement = format!("select :b::int as b, :a::{kind} as v");
        let (pointer, message) = single_violation(
            shop.run_read(&statement, json!({"a": argument, "b": 1}))
                .await,
        );
        assert_eq!(pointer, "/a", "{kind}");
        assert!(message.contains(want), "{kind} {argument}: {message}");
    }
    assert_eq!(shop.query_number("select count(*) from customers").await, 3);
}

#[tokio::test]
async fn wrapping_does_not_change_the_result() {
    let Some(shop) = Shop::new("around").await else {
        return;
    };
    shop.run(
        "create sequence counted; create function counting(t text) returns text language sql volatile as
         $$ select t || nextval('counted') $$",
    )
    .await;
    let ordered = shop
        .run_read(
            "select name, year from customers order by year desc, name desc limit 2",
            json!({}),
        )
        .await;
    assert_eq!(
        result_data(ordered),
        json!([{"name": "Cy", "year": 2025}, {"name": "Bo", "year": 2024}])
    );
    let counted = shop.tool(
        "select counting(name) as v from customers order by id",
        Effect::Write,
    );
    assert_eq!(
        result_data(call(&counted, json!({})).await.0),
        json!([{"v": "Ann1"}, {"v": "Bo2"}, {"v": "Cy3"}]),
        "once each"
    );
    let inserted = "insert into customers (name) values (counting('Di')), (counting('Ed')) returning name, (id, name) as both";
    let inserted = result_data(call(&shop.tool(inserted, Effect::Write), json!({})).await.0);
    assert_eq!(
        inserted,
        json!([{"name": "Di4", "both": "(4,Di4)"}, {"name": "Ed5", "both": "(5,Ed5)"}])
    );
    for (statement, want) in [
        (
            "select 'a' as \"?column?\", 'b' as \"with \"\"quotes\"\"\"",
            json!([{"?column?": "a", "with \"quotes\"": "b"}]),
        ),
        ("values ('a')", json!([{"column1": "a"}])),
        (
            "with recursive w (x) as (select 'a' union all select x || 'a' from w where length(x) < 2) select x from w -- end",
            json!([{"x": "a"}, {"x": "aa"}]),
        ),
        (
            "select x from (select 'a' as x) as \"rows\" /* end */",
            json!([{"x": "a"}]),
        ),
        (
            "select null::text as x, null::jsonb as y, null::int[] as z",
            json!([{"x": null, "y": null, "z": null}]),
        ),
        ("table customers limit 0", json!([])),
    ] {
        assert_eq!(
            result_data(shop.run_read(statement, json!({})).await),
            want,
            "{statement}"
        );
    }
    let locked = "select name from customers where id = 1 for update";
    assert_eq!(
        result_data(call(&shop.tool(locked, Effect::Write), json!({})).await.0),
        json!([{"name": "Ann"}])
    );
    let texts = shop.tool("select * from customers where name = 'Ann'", Effect::Read);
    call(&texts, json!({})).await.0.unwrap();
    shop.run("alter table customers add column extra jsonb default '{\"e\": 1}'")
        .await;
    assert_eq!(
        result_data(call(&texts, json!({})).await.0)[0]["extra"],
        json!({"e": 1}),
        "described again"
    );
}
