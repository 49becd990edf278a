use orrery_ledger::domain::ContractId;
use stellar_xdr::{
    ScMap, ScMapEntry, ScSpecTypeDef, ScSpecTypeOption, ScSpecTypeUdt, ScSpecTypeVec,
    ScSpecUdtEnumV0, ScSpecUdtStructFieldV0, ScSpecUdtStructV0, ScSymbol, ScVal,
};

use super::*;
use crate::types::ColumnType;

const LIMITS: SchemaLimits = SchemaLimits { tables: 100, columns: 100, depth: 8, absent: 10_000 };

fn structure(name: &str, fields: &[(&str, ScSpecTypeDef)]) -> ScSpecEntry {
    let field = |(name, kind): &(&str, ScSpecTypeDef)| ScSpecUdtStructFieldV0 {
        doc: "".try_into().unwrap(),
        name: (*name).try_into().unwrap(),
        type_: kind.clone(),
    };
    ScSpecEntry::UdtStructV0(ScSpecUdtStructV0 {
        doc: "".try_into().unwrap(),
        lib: "".try_into().unwrap(),
        name: name.try_into().unwrap(),
        fields: fields.iter().map(field).collect::<Vec<_>>().try_into().unwrap(),
    })
}

fn named(name: &str) -> ScSpecTypeDef {
    ScSpecTypeDef::Udt(ScSpecTypeUdt { name: name.try_into().unwrap() })
}

fn vec_of(kind: ScSpecTypeDef) -> ScSpecTypeDef {
    ScSpecTypeDef::Vec(Box::new(ScSpecTypeVec { element_type: Box::new(kind) }))
}

fn emit(target: &str, fields: &[(&str, ScVal)]) -> Emit {
    let entry = |(name, val): &(&str, ScVal)| ScMapEntry {
        key: ScVal::Symbol(ScSymbol((*name).try_into().unwrap())),
        val: val.clone(),
    };
    let fields: Vec<_> = fields.iter().map(entry).collect();
    Emit {
        contract: ContractId([1; 32]),
        target: target.to_owned(),
        fields: ScMap(fields.try_into().unwrap()),
    }
}

fn from_spec(entries: &[ScSpecEntry], emitted: &str) -> Result<ProgramSchema, SchemaError> {
    ProgramSchema::from_spec(entries, |target| target == emitted, LIMITS)
}

#[test]
fn structs_with_equivalent_names_share_one_table() {
    let entries = [
        structure("TwoShapes", &[("a", ScSpecTypeDef::U32), ("b", ScSpecTypeDef::Bool)]),
        structure(
            "Two_Shapes",
            &[("b", ScSpecTypeDef::String), ("a", ScSpecTypeDef::I128), ("c", ScSpecTypeDef::U32)],
        ),
    ];
    let schema = from_spec(&entries, "two_shapes").unwrap();
    let [table] = schema.tables() else { panic!("{schema:?}") };
    let columns: Vec<_> =
        table.columns.iter().map(|it| (it.name.as_str(), it.kind.to_string())).collect();
    let columns: Vec<_> = columns.iter().map(|(name, kind)| (*name, kind.as_str())).collect();
    assert_eq!(columns, [("a", "HUGEINT"), ("b", "BOOLEAN"), ("c", "UINTEGER")]);
}

#[test]
fn only_structs_that_may_be_emitted_become_tables() {
    let entries = [
        structure(
            "LiquidityEvent",
            &[("pool", ScSpecTypeDef::Address), ("status", named("Status"))],
        ),
        structure("Config", &[("admin", ScSpecTypeDef::Address)]),
        ScSpecEntry::UdtEnumV0(ScSpecUdtEnumV0 {
            name: "Status".try_into().unwrap(),
            ..Default::default()
        }),
    ];
    let schema = from_spec(&entries, "liquidity_event").unwrap();
    let [table] = schema.tables() else { panic!("{schema:?}") };
    assert_eq!(table.target, "liquidity_event");
    let kinds: Vec<String> = table.columns.iter().map(|it| it.kind.to_string()).collect();
    assert_eq!(kinds, ["VARCHAR", "UINTEGER"]);
}

#[test]
fn structs_emitted_later_have_the_types_of_their_specification() {
    let option = ScSpecTypeOption { value_type: Box::new(ScSpecTypeDef::I128) };
    let entries = [structure("Swap", &[("a", ScSpecTypeDef::Option(Box::new(option)))])];
    let schema = from_spec(&entries, "").unwrap();
    assert!(schema.tables().is_empty());
    let grown = schema.admit(&[emit("swap", &[("a", ScVal::Void)])], LIMITS).unwrap().unwrap();
    assert_eq!(grown.tables()[0].columns[0].kind, ColumnType::Int128);
    assert_eq!(grown.admit(&[emit("swap", &[("a", ScVal::Void)])], LIMITS), Ok(None));
}

#[test]
fn nested_and_recursive_structs_are_expanded_only_to_a_limit() {
    let mut entries = vec![
        structure("Node", &[("next", vec_of(named("Node"))), ("value", ScSpecTypeDef::U32)]),
        structure("Last", &[("x", ScSpecTypeDef::U32)]),
    ];
    // Each struct has forty fields of the next struct's type: expanded, that would be some 40^19
    // fields.
    let names: Vec<String> = (0..20).map(|number| format!("S{number}")).collect();
    for pair in names.windows(2) {
        let fields: Vec<(String, ScSpecTypeDef)> =
            (0..40).map(|field| (format!("f{field}"), named(&pair[1]))).collect();
        let fields: Vec<_> =
            fields.iter().map(|(name, kind)| (name.as_str(), kind.clone())).collect();
        entries.push(structure(&pair[0], &fields));
    }
    entries.push(structure("S19", &[("last", named("Last"))]));
    let schema = from_spec(&entries, "node").unwrap();
    let kind = &schema.tables()[0].columns[0].kind;
    assert_eq!(*kind, ColumnType::list(ColumnType::Json));
    assert!(serde_json::to_string(&schema).unwrap().len() < 4 << 20);
    let deep = from_spec(&entries, "s_0").unwrap_err();
    assert!(deep.to_string().ends_with("; a column may be 8 deep"), "{deep}");
}

#[test]
fn invalid_and_reserved_names_are_refused() {
    let value = ScVal::U32(1);
    let schema = ProgramSchema::default();
    let refuse = |emits: &[Emit]| schema.admit(emits, LIMITS).unwrap_err().to_string();
    assert_eq!(
        refuse(&[emit("grün", &[])]),
        "'grün' cannot be the name of a table: use letters, digits and _, at most 63 characters"
    );
    assert!(refuse(&[emit("", &[])]).starts_with("'' cannot be"));
    assert_eq!(
        refuse(&[emit("Swap", &[]), emit("swap", &[])]),
        "the targets 'Swap' and 'swap' are the same table: rename one"
    );
    for name in ["transaction", "Contract_ID", "_ledger", "_service_event_id", "_LEDGER_closed_at"]
    {
        let sentence = refuse(&[emit("swap", &[(name, value.clone())])]);
        assert_eq!(
            sentence,
            format!("'swap' has a field '{name}', which every table has already: rename it")
        );
    }
    assert_eq!(
        refuse(&[emit("swap", &[("A", value.clone()), ("a", value.clone())])]),
        "the fields 'A' and 'a' of 'swap' are the same column: rename one"
    );
    assert!(refuse(&[emit("swap", &[("", value)])]).contains("name is empty"));
    let entries = [structure("Swap", &[("transaction", ScSpecTypeDef::U32)])];
    let sentence = from_spec(&entries, "swap").unwrap_err().to_string();
    assert!(sentence.contains("which every table has already"), "{sentence}");
    assert!(from_spec(&entries, "other").is_ok());
}

#[test]
fn limits_are_inclusive() {
    let names: Vec<String> = (0..101).map(|number| format!("c{number}")).collect();
    let fields: Vec<(&str, ScVal)> =
        names.iter().map(|name| (name.as_str(), ScVal::U32(1))).collect();
    let schema = ProgramSchema::default();
    assert!(schema.admit(&[emit("wide", &fields[..100])], LIMITS).is_ok());
    let sentence = schema.admit(&[emit("wide", &fields)], LIMITS).unwrap_err().to_string();
    assert_eq!(sentence, "'wide' has 101 columns; a table may have 100");
    let row = |number: usize| emit(&format!("t{number}"), &[("a", ScVal::U32(1))]);
    let rows: Vec<Emit> = (0..101).map(row).collect();
    assert!(schema.admit(&rows[..100], LIMITS).is_ok());
    let sentence = schema.admit(&rows, LIMITS).unwrap_err().to_string();
    assert_eq!(sentence, "'t100' would be table 101 of the program, which may have 100");
    let nested = |depth: usize| {
        (0..depth).fold(ScVal::U32(1), |inner, _| ScVal::Vec(Some(vec![inner].try_into().unwrap())))
    };
    assert!(schema.admit(&[emit("deep", &[("a", nested(8))])], LIMITS).is_ok());
    let sentence =
        schema.admit(&[emit("deep", &[("a", nested(9))])], LIMITS).unwrap_err().to_string();
    assert_eq!(sentence, "column 'a' of 'deep' is nested 9 deep; a column may be 8 deep");
}

#[test]
fn a_failed_run_leaves_the_schema_unchanged() {
    let schema = ProgramSchema::default();
    let first = schema.admit(&[emit("t", &[("a", ScVal::U32(1))])], LIMITS).unwrap().unwrap();
    let error =
        first.admit(&[emit("u", &[]), emit("t", &[("a", ScVal::Bool(true))])], LIMITS).unwrap_err();
    assert_eq!(error.to_string(), "column 'a' of 't' expected UINTEGER and got BOOLEAN");
    assert_eq!(first.tables().len(), 1);
    let grown = first.admit(&[emit("t", &[("a", ScVal::I64(1)), ("b", ScVal::Void)])], LIMITS);
    let grown = grown.unwrap().unwrap();
    let kinds: Vec<_> = grown.tables()[0].columns.iter().map(|it| it.kind.clone()).collect();
    assert_eq!(kinds, [ColumnType::Int64, ColumnType::Unknown]);
    let again: ProgramSchema =
        serde_json::from_str(&serde_json::to_string(&grown).unwrap()).unwrap();
    assert_eq!(again, grown);
}

#[test]
fn columns_whose_types_values_have_decided_are_known() {
    let fields = [("a", ScSpecTypeDef::U32), ("b", ScSpecTypeDef::U32)];
    let schema = from_spec(&[structure("Row", &fields)], "row").unwrap();
    let inferred = |schema: &ProgramSchema| {
        let table = &schema.tables()[0];
        ["a", "b", "c"].map(|column| table.is_inferred(column))
    };
    assert_eq!(inferred(&schema), [false; 3]);
    let row = |b, c| emit("row", &[("a", ScVal::U32(1)), ("b", b), ("c", c)]);
    let grown = schema.admit(&[row(ScVal::U32(1), ScVal::U32(1))], LIMITS).unwrap().unwrap();
    assert_eq!(inferred(&grown), [false, false, true]);
    // One of the specification, too, once a value did not fit.
    let grown = grown.admit(&[row(ScVal::U64(1), ScVal::U64(1))], LIMITS).unwrap().unwrap();
    assert_eq!(inferred(&grown), [false, true, true]);
    let stored = serde_json::to_string(&grown).unwrap();
    assert_eq!(serde_json::from_str::<ProgramSchema>(&stored).unwrap(), grown);
}
