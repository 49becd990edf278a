//! Common queries of tables, and their answers.

/// Statements and the rows of their answers, as JSON.
pub const ANSWERS: &[(&str, &str)] = &[
    // Reading, filtering, sorting.
    ("SELECT n FROM dex_swap WHERE fee = 5 ORDER BY n", r#"[{"n":3},{"n":4}]"#),
    ("FROM dex_swap SELECT n WHERE buyer = 'ann' ORDER BY n DESC LIMIT 2", r#"[{"n":6},{"n":3}]"#),
    ("FROM retroshade.program_1_swap SELECT count(*) AS c", r#"[{"c":6}]"#),
    ("TABLE dex_pool ORDER BY ALL LIMIT 0", "[]"),
    ("SELECT 1 AS one", r#"[{"one":1}]"#),
    ("VALUES (1, 'a'), (2, 'b')", r#"[{"col0":1,"col1":"a"},{"col0":2,"col1":"b"}]"#),
    (
        "SELECT DISTINCT pool FROM dex_swap ORDER BY pool",
        r#"[{"pool":"btc_usdc"},{"pool":"eth_usdc"},{"pool":"xlm_usdc"}]"#,
    ),
    ("SELECT n FROM dex_swap WHERE amount IS NULL", r#"[{"n":5}]"#),
    ("SELECT n FROM dex_swap WHERE amount BETWEEN 0 AND 100 ORDER BY n", r#"[{"n":4},{"n":6}]"#),
    (
        "SELECT n FROM dex_swap WHERE pool IN ('btc_usdc', 'eth_usdc') AND NOT fee > 5 ORDER BY n",
        r#"[{"n":3},{"n":4}]"#,
    ),
    ("SELECT n FROM dex_swap WHERE pool LIKE 'b%' ORDER BY n", r#"[{"n":3},{"n":4}]"#),
    ("SELECT n FROM dex_swap WHERE pool ILIKE '%XLM%' ORDER BY n", r#"[{"n":1},{"n":2},{"n":6}]"#),
    (
        "SELECT n FROM dex_swap WHERE pool SIMILAR TO '(eth|btc)_.*' ORDER BY n",
        r#"[{"n":3},{"n":4},{"n":5}]"#,
    ),
    (
        "SELECT n FROM dex_swap WHERE buyer IS DISTINCT FROM 'ann' ORDER BY n",
        r#"[{"n":2},{"n":4},{"n":5}]"#,
    ),
    (
        "SELECT n FROM dex_swap ORDER BY amount DESC NULLS LAST, n",
        r#"[{"n":3},{"n":1},{"n":6},{"n":4},{"n":2},{"n":5}]"#,
    ),
    ("SELECT n FROM dex_swap ORDER BY n LIMIT 2 OFFSET 3", r#"[{"n":4},{"n":5}]"#),
    (
        "SELECT * EXCLUDE (contract_id, transaction, _service_event_id, _ledger, _ledger_closed_at, tags, meta, state) FROM dex_swap WHERE n = 1",
        r#"[{"amount":1000,"buyer":"ann","fee":30,"n":1,"pool":"xlm_usdc"}]"#,
    ),
    (
        "SELECT * REPLACE (fee / 10 AS fee) FROM (SELECT n, fee FROM dex_swap WHERE n < 3) ORDER BY n",
        r#"[{"n":1,"fee":3.0},{"n":2,"fee":3.0}]"#,
    ),
    ("SELECT COLUMNS('^(n|fee)$') FROM dex_swap WHERE n = 4", r#"[{"fee":5,"n":4}]"#),
    (
        "SELECT s.n AS \"the n\", s.pool pool FROM dex_swap AS s WHERE s.n = 2",
        r#"[{"the n":2,"pool":"xlm_usdc"}]"#,
    ),
    (
        "SELECT _ledger, _ledger_closed_at FROM dex_swap WHERE n = 1",
        r#"[{"_ledger":1001,"_ledger_closed_at":"2023-11-14T22:13:25"}]"#,
    ),
    (
        "SELECT length(transaction) AS t, length(_service_event_id) AS e, left(contract_id, 1) AS c FROM dex_swap WHERE n = 1",
        r#"[{"t":64,"e":64,"c":"C"}]"#,
    ),
    // Aggregates.
    (
        "SELECT count(*) AS a, count(amount) AS b, count(DISTINCT buyer) AS c FROM dex_swap",
        r#"[{"a":6,"b":5,"c":3}]"#,
    ),
    ("SELECT sum(amount) AS s FROM dex_swap", r#"[{"s":"1000000000000000000000000000804"}]"#),
    ("SELECT sum(amount) AS s FROM dex_swap WHERE pool = 'xlm_usdc'", r#"[{"s":800}]"#),
    (
        "SELECT min(amount) AS a, max(fee) AS b, avg(fee) AS c FROM dex_swap WHERE n <> 3",
        r#"[{"a":-250,"b":30,"c":21.0}]"#,
    ),
    (
        "SELECT pool, sum(fee) AS fees FROM dex_swap GROUP BY pool ORDER BY pool",
        r#"[{"pool":"btc_usdc","fees":10},{"pool":"eth_usdc","fees":10},{"pool":"xlm_usdc","fees":90}]"#,
    ),
    (
        "SELECT pool, count(*) AS c FROM dex_swap GROUP BY ALL HAVING count(*) > 1 ORDER BY ALL",
        r#"[{"pool":"btc_usdc","c":2},{"pool":"xlm_usdc","c":3}]"#,
    ),
    (
        "SELECT pool, buyer, count(*) AS c FROM dex_swap WHERE fee = 30 GROUP BY ROLLUP (pool, buyer) ORDER BY ALL",
        r#"[{"pool":"xlm_usdc","buyer":"ann","c":2},{"pool":"xlm_usdc","buyer":"bob","c":1},{"pool":"xlm_usdc","buyer":null,"c":3},{"pool":null,"buyer":null,"c":3}]"#,
    ),
    (
        "SELECT fee, grouping(fee) AS g, count(*) AS c FROM dex_swap GROUP BY CUBE (fee) ORDER BY ALL",
        r#"[{"fee":5,"g":0,"c":2},{"fee":10,"g":0,"c":1},{"fee":30,"g":0,"c":3},{"fee":null,"g":1,"c":6}]"#,
    ),
    (
        "SELECT count(*) FILTER (WHERE fee = 30) AS a, count(*) FILTER (fee < 30) AS b FROM dex_swap",
        r#"[{"a":3,"b":3}]"#,
    ),
    (
        "SELECT string_agg(buyer, ',' ORDER BY n) AS s FROM dex_swap",
        r#"[{"s":"ann,bob,ann,cid,bob,ann"}]"#,
    ),
    ("SELECT list(n ORDER BY n DESC) AS l FROM dex_swap WHERE fee = 30", r#"[{"l":[6,2,1]}]"#),
    ("SELECT median(fee) AS m, mode(fee) AS o FROM dex_swap", r#"[{"m":20.0,"o":30}]"#),
    (
        "SELECT quantile_cont(fee, 0.5) AS q, quantile_disc(fee, 0.5) AS d FROM dex_swap WHERE n <= 3",
        r#"[{"q":30.0,"d":30}]"#,
    ),
    ("SELECT arg_max(n, amount) AS a, arg_min(n, amount) AS b FROM dex_swap", r#"[{"a":3,"b":2}]"#),
    (
        "SELECT bool_and(fee > 1) AS a, bool_or(fee > 20) AS b FROM dex_swap",
        r#"[{"a":true,"b":true}]"#,
    ),
    (
        "SELECT stddev_pop(n) AS s, var_samp(n) AS v FROM dex_swap WHERE n <= 2",
        r#"[{"s":0.5,"v":0.5}]"#,
    ),
    ("SELECT histogram(fee) AS h FROM dex_swap", r#"[{"h":{"5":2,"10":1,"30":3}}]"#),
    ("SELECT bit_xor(n) AS x, product(n) AS p FROM dex_swap", r#"[{"x":7,"p":720.0}]"#),
    (
        "SELECT first(n ORDER BY n) AS f, last(n ORDER BY n) AS l, any_value(fee) FILTER (n = 3) AS v FROM dex_swap",
        r#"[{"f":1,"l":6,"v":5}]"#,
    ),
    ("SELECT approx_count_distinct(fee) > 0 AS a FROM dex_swap", r#"[{"a":true}]"#),
    (
        "SELECT corr(n, n * 2) AS c, regr_slope(n * 3, n) AS r FROM dex_swap",
        r#"[{"c":1.0,"r":3.0}]"#,
    ),
    (
        "SELECT sum(x) AS s FROM (VALUES (170141183460469231731687303715884105726::HUGEINT), (1)) t(x)",
        r#"[{"s":"170141183460469231731687303715884105727"}]"#,
    ),
    ("SELECT max(u) AS m FROM dex_pool", r#"[{"m":"340282366920938463463374607431768211455"}]"#),
    (
        "SELECT u::VARCHAR AS t, u // 2 AS h, u % 10 AS r FROM dex_pool WHERE name = 'big'",
        r#"[{"t":"340282366920938463463374607431768211455","h":"170141183460469231731687303715884105727","r":5}]"#,
    ),
    // Windows.
    (
        "SELECT n, row_number() OVER (PARTITION BY pool ORDER BY n) AS r FROM dex_swap ORDER BY n",
        r#"[{"n":1,"r":1},{"n":2,"r":2},{"n":3,"r":1},{"n":4,"r":2},{"n":5,"r":1},{"n":6,"r":3}]"#,
    ),
    (
        "SELECT n, sum(fee) OVER (ORDER BY n) AS s FROM dex_swap WHERE n < 4 ORDER BY n",
        r#"[{"n":1,"s":30},{"n":2,"s":60},{"n":3,"s":65}]"#,
    ),
    (
        "SELECT n, lag(n) OVER (ORDER BY n) AS p, lead(n, 2, 0) OVER (ORDER BY n) AS q FROM dex_swap WHERE n < 4 ORDER BY n",
        r#"[{"n":1,"p":null,"q":3},{"n":2,"p":1,"q":0},{"n":3,"p":2,"q":0}]"#,
    ),
    (
        "SELECT n, rank() OVER (ORDER BY fee) AS r, dense_rank() OVER (ORDER BY fee) AS d FROM dex_swap ORDER BY n LIMIT 3",
        r#"[{"n":1,"r":4,"d":3},{"n":2,"r":4,"d":3},{"n":3,"r":1,"d":1}]"#,
    ),
    (
        "SELECT n, avg(fee) OVER (ORDER BY n ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS a FROM dex_swap ORDER BY n LIMIT 3",
        r#"[{"n":1,"a":30.0},{"n":2,"a":30.0},{"n":3,"a":17.5}]"#,
    ),
    (
        "SELECT n, first_value(n) OVER w AS f, ntile(2) OVER w AS t FROM dex_swap WINDOW w AS (ORDER BY n) ORDER BY n LIMIT 1",
        r#"[{"n":1,"f":1,"t":1}]"#,
    ),
    (
        "SELECT n FROM dex_swap QUALIFY row_number() OVER (PARTITION BY pool ORDER BY n DESC) = 1 ORDER BY n",
        r#"[{"n":4},{"n":5},{"n":6}]"#,
    ),
    (
        "SELECT n, percent_rank() OVER (ORDER BY n) AS p, cume_dist() OVER (ORDER BY n) AS c FROM dex_swap WHERE n IN (1, 2) ORDER BY n",
        r#"[{"n":1,"p":0.0,"c":0.5},{"n":2,"p":1.0,"c":1.0}]"#,
    ),
    (
        "SELECT n, count(*) OVER () AS c FROM dex_swap WHERE fee = 5 ORDER BY n",
        r#"[{"n":3,"c":2},{"n":4,"c":2}]"#,
    ),
    // Joins and subqueries.
    (
        "SELECT s.n, p.tvl FROM dex_swap s JOIN dex_pool p ON p.name = s.pool WHERE s.n = 3",
        r#"[{"n":3,"tvl":7}]"#,
    ),
    (
        "SELECT s.n, p.tvl FROM dex_swap s LEFT JOIN dex_pool p ON p.name = s.pool WHERE s.n = 5",
        r#"[{"n":5,"tvl":null}]"#,
    ),
    (
        "SELECT p.name, s.n FROM dex_swap s RIGHT JOIN dex_pool p ON p.name = s.pool WHERE p.name = 'big'",
        r#"[{"name":"big","n":null}]"#,
    ),
    (
        "SELECT count(*) AS c FROM dex_swap s FULL OUTER JOIN dex_pool p ON p.name = s.pool",
        r#"[{"c":7}]"#,
    ),
    ("SELECT count(*) AS c FROM dex_swap CROSS JOIN dex_pool", r#"[{"c":18}]"#),
    (
        "SELECT n FROM dex_swap SEMI JOIN dex_pool ON dex_pool.name = dex_swap.pool ORDER BY n",
        r#"[{"n":1},{"n":2},{"n":3},{"n":4},{"n":6}]"#,
    ),
    ("SELECT n FROM dex_swap ANTI JOIN dex_pool ON dex_pool.name = dex_swap.pool", r#"[{"n":5}]"#),
    (
        "SELECT n FROM dex_swap WHERE EXISTS (SELECT 1 FROM dex_pool WHERE name = pool AND tvl > 5) ORDER BY n",
        r#"[{"n":3},{"n":4}]"#,
    ),
    ("SELECT n FROM dex_swap WHERE pool NOT IN (SELECT name FROM dex_pool)", r#"[{"n":5}]"#),
    (
        "SELECT n FROM dex_swap WHERE fee >= ALL (SELECT fee FROM dex_swap) ORDER BY n",
        r#"[{"n":1},{"n":2},{"n":6}]"#,
    ),
    (
        "SELECT (SELECT max(n) FROM dex_swap s WHERE s.pool = p.name) AS m FROM dex_pool p ORDER BY p.name",
        r#"[{"m":null},{"m":4},{"m":6}]"#,
    ),
    (
        "SELECT p.name, t.n FROM dex_pool p, LATERAL (SELECT max(n) AS n FROM dex_swap WHERE pool = p.name) t WHERE p.tvl = 5",
        r#"[{"name":"xlm_usdc","n":6}]"#,
    ),
    (
        "SELECT a.n, b.n FROM dex_swap a ASOF JOIN dex_swap b ON a.n > b.n WHERE a.n = 4",
        r#"[{"n":4,"n_1":3}]"#,
    ),
    (
        "SELECT s.n, p.n FROM (SELECT 1 AS n, 'a' AS k) s JOIN (SELECT 2 AS n, 'a' AS k) p USING (k)",
        r#"[{"n":1,"n_1":2}]"#,
    ),
    ("SELECT * FROM (SELECT 1 AS a) POSITIONAL JOIN (SELECT 2 AS b)", r#"[{"a":1,"b":2}]"#),
    (
        "SELECT n FROM dex_swap WHERE fee = 5 UNION SELECT n FROM dex_swap WHERE n = 4 ORDER BY n",
        r#"[{"n":3},{"n":4}]"#,
    ),
    ("SELECT 1 AS n UNION ALL SELECT 1 EXCEPT SELECT 2", r#"[{"n":1}]"#),
    ("SELECT 1 AS a UNION ALL BY NAME SELECT 2 AS b", r#"[{"a":1,"b":null},{"a":null,"b":2}]"#),
    ("SELECT n FROM dex_swap INTERSECT SELECT 4 AS n", r#"[{"n":4}]"#),
    // WITH.
    (
        "WITH a AS (SELECT n FROM dex_swap WHERE fee = 5), b AS (SELECT n + 1 AS n FROM a) SELECT sum(n) AS s FROM b",
        r#"[{"s":9}]"#,
    ),
    (
        "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r WHERE i < 4) SELECT list(i) AS l FROM r",
        r#"[{"l":[1,2,3,4]}]"#,
    ),
    ("WITH a AS MATERIALIZED (SELECT 1 AS x) SELECT x FROM a", r#"[{"x":1}]"#),
    ("WITH dex_swap AS (SELECT 9 AS n) SELECT n FROM dex_swap", r#"[{"n":9}]"#),
    ("WITH t(a, b) AS (VALUES (1, 2)) SELECT a + b AS c FROM t", r#"[{"c":3}]"#),
    // Lists.
    ("SELECT tags[1] AS t, len(tags) AS l FROM dex_swap WHERE n = 6", r#"[{"t":"b","l":2}]"#),
    ("SELECT n FROM dex_swap WHERE list_contains(tags, 'a') ORDER BY n", r#"[{"n":1},{"n":2}]"#),
    (
        "SELECT n, unnest(tags) AS t FROM dex_swap WHERE n IN (1, 4) ORDER BY n, t",
        r#"[{"n":1,"t":"a"},{"n":1,"t":"b"},{"n":4,"t":"c"}]"#,
    ),
    (
        "SELECT t, count(*) AS c FROM (SELECT unnest(tags) AS t FROM dex_swap) GROUP BY t ORDER BY t",
        r#"[{"t":"a","c":2},{"t":"b","c":2},{"t":"c","c":2}]"#,
    ),
    (
        "SELECT list_transform(tags, lambda t: upper(t)) AS u FROM dex_swap WHERE n = 1",
        r#"[{"u":["A","B"]}]"#,
    ),
    ("SELECT [x * 2 FOR x IN [1, 2, 3] IF x > 1] AS l", r#"[{"l":[4,6]}]"#),
    (
        "SELECT list_filter([1, 2, 3], lambda x: x <> 2) AS f, list_reduce([1, 2, 3], lambda a, b: a + b) AS r",
        r#"[{"f":[1,3],"r":6}]"#,
    ),
    (
        "SELECT [1, 2] || [3] AS c, list_sort([3, 1, 2]) AS s, list_distinct([1, 1]) AS d",
        r#"[{"c":[1,2,3],"s":[1,2,3],"d":[1]}]"#,
    ),
    (
        "SELECT flatten([[1], [2, 3]]) AS f, list_zip([1], ['a']) AS z, [1, 2, 3][2:] AS s",
        r#"[{"f":[1,2,3],"z":[{"0":1,"1":"a"}],"s":[2,3]}]"#,
    ),
    (
        "SELECT list_sum([1, 2]) AS s, list_max([1, 5]) AS m, list_aggregate([1, 3], 'avg') AS a",
        r#"[{"s":3,"m":5,"a":2.0}]"#,
    ),
    ("SELECT i FROM range(3) t(i)", r#"[{"i":0},{"i":1},{"i":2}]"#),
    ("SELECT generate_series(1, 5, 2) AS g, range(2) AS r", r#"[{"g":[1,3,5],"r":[0,1]}]"#),
    (
        "SELECT [1, 2]::INTEGER[2] AS a, array_distance([0.0, 0.0]::FLOAT[2], [3.0, 4.0]::FLOAT[2]) AS d",
        r#"[{"a":[1,2],"d":5.0}]"#,
    ),
    // Maps and structs.
    ("SELECT meta['hops'] AS h FROM dex_swap WHERE n = 2", r#"[{"h":2}]"#),
    ("SELECT meta FROM dex_swap WHERE n = 2", r#"[{"meta":{"hops":2,"via":7}}]"#),
    (
        "SELECT map_keys(meta) AS k, map_values(meta) AS v, cardinality(meta) AS c FROM dex_swap WHERE n = 2",
        r#"[{"k":["hops","via"],"v":[2,7],"c":2}]"#,
    ),
    ("SELECT sum(meta['hops']) AS s FROM dex_swap", r#"[{"s":7}]"#),
    (
        "SELECT map_entries(MAP {'a': 1}) AS e, MAP {1: 'x'}[1] AS x",
        r#"[{"e":[{"key":"a","value":1}],"x":"x"}]"#,
    ),
    ("SELECT {'a': 1, 'b': {'c': [1, 2]}} AS s", r#"[{"s":{"a":1,"b":{"c":[1,2]}}}]"#),
    (
        "SELECT s.b.c[2] AS x, s.* FROM (SELECT {'a': 1, 'b': {'c': [1, 2]}} AS s)",
        r#"[{"x":2,"a":1,"b":{"c":[1,2]}}]"#,
    ),
    (
        "SELECT struct_pack(x := 1, y := 'b') AS s, row(1, 'a') AS r",
        r#"[{"s":{"x":1,"y":"b"},"r":{"0":1,"1":"a"}}]"#,
    ),
    ("SELECT unnest({'a': 1, 'b': 2})", r#"[{"a":1,"b":2}]"#),
    (
        "SELECT union_value(num := 2) AS u, union_tag(union_value(num := 2)) AS t",
        r#"[{"u":2,"t":"num"}]"#,
    ),
    // JSON.
    (
        "SELECT state FROM dex_swap WHERE n = 1",
        r#"[{"state":{"vec":[{"symbol":"Filled"},{"u64":"10"}]}}]"#,
    ),
    (
        "SELECT state->'$.vec[0]'->>'symbol' AS k, (state->>'$.vec[1].u64')::BIGINT AS v FROM dex_swap ORDER BY n LIMIT 2",
        r#"[{"k":"Filled","v":10},{"k":"Filled","v":20}]"#,
    ),
    (
        "SELECT sum((state->>'$.vec[1].u64')::HUGEINT) AS s FROM dex_swap WHERE state->>'$.vec[0].symbol' = 'Filled'",
        r#"[{"s":65}]"#,
    ),
    (
        "SELECT json_extract_string('{\"a\":[1,{\"b\":\"x\"}]}', '$.a[1].b') AS x, json_array_length('[1,2]') AS l",
        r#"[{"x":"x","l":2}]"#,
    ),
    (
        "SELECT '{\"a\":1}'::JSON AS j, json_object('k', 1, 'l', [1]) AS o, to_json([1, NULL]) AS t",
        r#"[{"j":{"a":1},"o":{"k":1,"l":[1]},"t":[1,null]}]"#,
    ),
    (
        "SELECT json_keys('{\"a\":1,\"b\":2}') AS k, json_type('[1]') AS t, json_valid('{') AS v",
        r#"[{"k":["a","b"],"t":"ARRAY","v":false}]"#,
    ),
    (
        "SELECT key, value FROM json_each('{\"a\":1,\"b\":\"x\"}') ORDER BY key",
        r#"[{"key":"a","value":1},{"key":"b","value":"x"}]"#,
    ),
    ("SELECT json_group_array(fee) AS g FROM dex_swap WHERE fee = 5", r#"[{"g":[5,5]}]"#),
    ("SELECT from_json('{\"a\":\"5\"}', '{\"a\":\"INTEGER\"}') AS s", r#"[{"s":{"a":5}}]"#),
    // Numbers.
    (
        "SELECT 9007199254740991 AS a, 9007199254740992 AS b, -9007199254740992 AS c",
        r#"[{"a":9007199254740991,"b":"9007199254740992","c":"-9007199254740992"}]"#,
    ),
    (
        "SELECT 1.10::DECIMAL(5, 2) AS a, 0.1 + 0.2 AS b, -0.5::DECIMAL(3, 1) AS c",
        r#"[{"a":1.10,"b":0.3,"c":-0.5}]"#,
    ),
    (
        "SELECT 123456789012345.6::DECIMAL(20, 1) AS a, 12345678901234567.89::DECIMAL(30, 2) AS b",
        r#"[{"a":"123456789012345.6","b":"12345678901234567.89"}]"#,
    ),
    (
        "SELECT 1e308::DOUBLE AS a, 'nan'::DOUBLE AS b, '-inf'::DOUBLE AS c, 0.1::FLOAT AS d",
        r#"[{"a":1e308,"b":"NaN","c":"-Infinity","d":0.1}]"#,
    ),
    (
        "SELECT round(2.567, 2) AS a, floor(-1.5) AS b, ceil(1.2) AS c, trunc(-1.7) AS d, abs(-3) AS e, sign(-2) AS f",
        r#"[{"a":2.57,"b":-2,"c":2,"d":-1,"e":3,"f":-1}]"#,
    ),
    (
        "SELECT 7 // 2 AS a, 7 % 3 AS b, 7 / 2 AS c, 2 ** 10 AS d, 5 & 3 AS e, 1 << 4 AS f, xor(6, 3) AS g",
        r#"[{"a":3,"b":1,"c":3.5,"d":1024.0,"e":1,"f":16,"g":5}]"#,
    ),
    (
        "SELECT 200::UTINYINT AS a, -5::TINYINT AS b, 60000::USMALLINT AS c, 18446744073709551615::UBIGINT AS d",
        r#"[{"a":200,"b":-5,"c":60000,"d":"18446744073709551615"}]"#,
    ),
    (
        "SELECT greatest(1, 3, 2) AS g, least(1, 3) AS l, gcd(12, 18) AS d, factorial(5) AS f",
        r#"[{"g":3,"l":1,"d":6,"f":120}]"#,
    ),
    (
        "SELECT sqrt(16) AS a, ln(1) AS b, log10(100) AS c, exp(0) AS d, pow(2, 3) AS e, pi() > 3 AS f",
        r#"[{"a":4.0,"b":0.0,"c":2.0,"d":1.0,"e":8.0,"f":true}]"#,
    ),
    (
        "SELECT TRY_CAST('x' AS INTEGER) AS a, '42'::INTEGER + 1 AS b, CAST(3.7 AS INTEGER) AS c",
        r#"[{"a":null,"b":43,"c":4}]"#,
    ),
    (
        "SELECT format('{:,}', 1234567) AS a, printf('%05d', 42) AS b, hex(255) AS c",
        r#"[{"a":"1,234,567","b":"00042","c":"FF"}]"#,
    ),
    // Text and bytes.
    (
        "SELECT upper('grün') AS a, length('grün') AS b, reverse('abc') AS c, substr('hello', 2, 3) AS d",
        r#"[{"a":"GRÜN","b":4,"c":"cba","d":"ell"}]"#,
    ),
    (
        "SELECT replace('a-b', '-', '+') AS a, split_part('a,b', ',', 2) AS b, string_split('a b', ' ') AS c, trim('  x ') AS d",
        r#"[{"a":"a+b","b":"b","c":["a","b"],"d":"x"}]"#,
    ),
    (
        "SELECT regexp_matches('abc', 'b.') AS a, regexp_extract('a1b22', '[0-9]+$') AS b, regexp_replace('aaa', 'a', 'b', 'g') AS c",
        r#"[{"a":true,"b":"22","c":"bbb"}]"#,
    ),
    (
        "SELECT 'a' || 'b' || 1 AS c, concat('a', NULL, 'b') AS d, concat_ws('-', 'a', 'b') AS e, starts_with('abc', 'ab') AS f",
        r#"[{"c":"ab1","d":"ab","e":"a-b","f":true}]"#,
    ),
    (
        "SELECT '\\x01\\xFF'::BLOB AS b, encode('é') AS e, decode('\\x61'::BLOB) AS d, octet_length('\\x61'::BLOB) AS l",
        r#"[{"b":"01ff","e":"c3a9","d":"a","l":1}]"#,
    ),
    (
        "SELECT from_hex('01ff') AS f, to_base64('a'::BLOB) AS b, md5('a') AS m, sha256('') AS s",
        r#"[{"f":"01ff","b":"YQ==","m":"0cc175b9c0f1b6a831c399e269772661","s":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}]"#,
    ),
    (
        "SELECT CASE WHEN fee > 20 THEN 'high' ELSE 'low' END AS k, count(*) AS c FROM dex_swap GROUP BY k ORDER BY k",
        r#"[{"k":"high","c":3},{"k":"low","c":3}]"#,
    ),
    (
        "SELECT coalesce(amount, 0) AS a, nullif(fee, 10) AS b, if(n > 1, 'y', 'n') AS c FROM dex_swap WHERE n = 5",
        r#"[{"a":0,"b":null,"c":"y"}]"#,
    ),
    (
        "SELECT '0f0e0d0c-0b0a-0908-0706-050403020100'::UUID AS u, 'b'::ENUM('a', 'b') AS e",
        r#"[{"u":"0f0e0d0c-0b0a-0908-0706-050403020100","e":"b"}]"#,
    ),
    // Time.
    (
        "SELECT date_trunc('minute', _ledger_closed_at) AS m, count(*) AS c FROM dex_swap GROUP BY m ORDER BY m",
        r#"[{"m":"2023-11-14T22:13:00","c":6}]"#,
    ),
    (
        "SELECT epoch(_ledger_closed_at) AS e, extract(year FROM _ledger_closed_at) AS y, strftime(_ledger_closed_at, '%H:%M') AS f FROM dex_swap WHERE n = 1",
        r#"[{"e":1700000005.0,"y":2023,"f":"22:13"}]"#,
    ),
    (
        "SELECT max(_ledger_closed_at) - min(_ledger_closed_at) AS d FROM dex_swap",
        r#"[{"d":"PT25S"}]"#,
    ),
    (
        "SELECT DATE '2024-02-29' AS a, TIME '12:34:56.5' AS b, TIMESTAMP '2024-01-01 00:00:00.000001' AS c",
        r#"[{"a":"2024-02-29","b":"12:34:56.5","c":"2024-01-01T00:00:00.000001"}]"#,
    ),
    (
        "SELECT DATE '2024-01-31' + INTERVAL 1 MONTH AS a, INTERVAL '1 year 2 days 3 hours' AS b, TIMESTAMPTZ '2024-01-01 00:00:00+02' AS c",
        r#"[{"a":"2024-02-29T00:00:00","b":"P1Y2DT3H","c":"2023-12-31T22:00:00Z"}]"#,
    ),
    (
        "SELECT date_diff('day', DATE '2024-01-01', DATE '2024-03-01') AS d, to_timestamp(0) AS t, make_date(2024, 2, 3) AS m",
        r#"[{"d":60,"t":"1970-01-01T00:00:00Z","m":"2024-02-03"}]"#,
    ),
    (
        "SELECT time_bucket(INTERVAL '10 seconds', _ledger_closed_at) AS b, count(*) AS c FROM dex_swap GROUP BY b ORDER BY b",
        r#"[{"b":"2023-11-14T22:13:20","c":1},{"b":"2023-11-14T22:13:30","c":2},{"b":"2023-11-14T22:13:40","c":2},{"b":"2023-11-14T22:13:50","c":1}]"#,
    ),
    (
        "SELECT TIMESTAMP_NS '2024-01-01 00:00:00.123456789' AS n, TIMESTAMP_S '2024-01-01 00:00:01' AS s, 'infinity'::TIMESTAMP AS i",
        r#"[{"n":"2024-01-01T00:00:00.123456789","s":"2024-01-01T00:00:01","i":"infinity"}]"#,
    ),
    (
        "SELECT now() > TIMESTAMPTZ '2020-01-01' AS a, dayname(DATE '2024-01-01') AS d, last_day(DATE '2024-02-01') AS l",
        r#"[{"a":true,"d":"Monday","l":"2024-02-29"}]"#,
    ),
    // Forms of statements.
    (
        "SELECT pool, fee FROM (PIVOT dex_swap ON buyer IN ('ann', 'bob') USING count(*) GROUP BY pool, fee) WHERE fee = 10",
        r#"[{"pool":"eth_usdc","fee":10}]"#,
    ),
    (
        "PIVOT (SELECT pool, buyer, fee FROM dex_swap) ON buyer IN ('ann', 'bob') USING sum(fee) GROUP BY pool ORDER BY pool",
        r#"[{"pool":"btc_usdc","ann":5,"bob":null},{"pool":"eth_usdc","ann":null,"bob":10},{"pool":"xlm_usdc","ann":60,"bob":30}]"#,
    ),
    (
        "UNPIVOT (SELECT 1 AS a, 2 AS b) ON a, b INTO NAME k VALUE v",
        r#"[{"k":"a","v":1},{"k":"b","v":2}]"#,
    ),
    (
        "SELECT column_name, column_type, \"key\" FROM (DESCRIBE dex_pool) WHERE column_name = 'tvl'",
        r#"[{"column_name":"tvl","column_type":"UINTEGER","key":null}]"#,
    ),
    ("SELECT column_name FROM (SUMMARIZE SELECT n FROM dex_swap)", r#"[{"column_name":"n"}]"#),
    (
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'retroshade' ORDER BY 1",
        r#"[{"table_name":"dex_pool"},{"table_name":"dex_swap"},{"table_name":"program_1_pool"},{"table_name":"program_1_swap"}]"#,
    ),
    (
        "SELECT column_name FROM information_schema.columns WHERE table_name = 'program_1_pool' ORDER BY ordinal_position DESC LIMIT 2",
        r#"[{"column_name":"u"},{"column_name":"tvl"}]"#,
    ),
    (
        "SHOW TABLES",
        r#"[{"name":"dex_pool"},{"name":"dex_swap"},{"name":"program_1_pool"},{"name":"program_1_swap"}]"#,
    ),
    ("SELECT count(*) AS c FROM dex_swap USING SAMPLE 100%", r#"[{"c":6}]"#),
    ("SELECT a, a, b AS a FROM (SELECT 1 AS a, 2 AS b)", r#"[{"a":1,"a_1":1,"a_2":2}]"#),
    ("SELECT 1 AS \" \", 2 AS \"a\"\"b\"", r#"[{" ":1,"a\"b":2}]"#),
    ("-- a comment\nSELECT /* another */ 1 AS a;", r#"[{"a":1}]"#),
    (
        "SELECT current_schema() AS s, typeof(1) AS t, NULL AS n",
        r#"[{"s":"retroshade","t":"INTEGER","n":null}]"#,
    ),
    ("SELECT n FROM dex_swap WHERE (pool, fee) = ('eth_usdc', 10)", r#"[{"n":5}]"#),
    ("SELECT sum(c0 + c49 + c99) AS s FROM dex_wide", r#"[{"s":148}]"#),
];
