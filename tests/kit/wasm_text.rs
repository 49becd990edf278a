//! WebAssembly text of modules that call functions of the environment: imports, constants and data.

use soroban_env_host::{Error, SymbolSmall, Val, call_macro_with_all_host_functions};

/// Import module and name of the function that emits a row.
const EMIT: (&str, &str) = ("x", "9");
/// A function that the environment lists but that no protocol has.
const UNAVAILABLE: &str = "protocol_gated_dummy";

/// A function of the environment.
struct EnvFunction {
    module: &'static str,
    import: &'static str,
    name: &'static str,
    parameters: usize,
}

macro_rules! functions {
    {$(
        $(#[$_a:meta])*
        mod $_module:ident $module:literal {$(
            $(#[$_b:meta])*
            { $import:literal, $($_least:literal)?, $($_most:literal)?,
              fn $name:ident ($($arg:ident: $_type:ty),*) -> $_ret:ty }
        )*}
    )*} => {
        fn env_functions() -> Vec<EnvFunction> {
            vec![$($(
                EnvFunction {
                    module: $module,
                    import: $import,
                    name: stringify!($name),
                    parameters: <[&str]>::len(&[$(stringify!($arg)),*]),
                },
            )*)*]
        }
    };
}

call_macro_with_all_host_functions! { functions }

/// Returns the imports of the whole environment, each under its function's name, and of emit.
pub fn imports() -> String {
    let (module, name) = EMIT;
    env_imports()
        + &format!("(import \"{module}\" \"{name}\" (func $emit (param i64 i64) (result i64)))\n")
}

/// Returns the imports of the functions that the network has.
pub fn env_imports() -> String {
    let mut text = String::new();
    for function in env_functions().iter().filter(|function| function.name != UNAVAILABLE) {
        let params = " i64".repeat(function.parameters);
        let params = if params.is_empty() { params } else { format!("(param{params})") };
        text += &format!(
            "(import \"{}\" \"{}\" (func ${} {params} (result i64)))\n",
            function.module, function.import, function.name
        );
    }
    text
}

/// Returns a constant 64-bit word.
pub fn word(word: u64) -> String {
    format!("(i64.const {})", word.cast_signed())
}

/// Returns a constant value.
pub fn val(val: impl Into<Val>) -> String {
    word(val.into().get_payload())
}

/// Returns a 32-bit number as a value.
pub fn u32v(number: u32) -> String {
    val(Val::from_u32(number))
}

/// Returns a symbol of at most nine characters.
pub fn sym(text: &str) -> String {
    val(SymbolSmall::try_from_str(text).unwrap())
}

pub fn void() -> String {
    val(Val::from_void())
}

/// Returns an error value with a contract's own error code.
pub fn error(code: u32) -> String {
    val(Error::from_contract_error(code))
}

/// Returns a call of a function of the environment.
pub fn env_call(name: &str, args: &[String]) -> String {
    format!("(call ${name} {})", args.join(" "))
}

/// Returns several calls in sequence, with the result of the last one.
pub fn seq(calls: &[String]) -> String {
    let (last, others) = calls.split_last().unwrap();
    let others: String = others.iter().map(|call| format!("(drop {call})")).collect();
    format!("(block (result i64) {others} {last})")
}

/// Returns a vector of values.
pub fn vec_of(items: &[String]) -> String {
    items
        .iter()
        .fold(env_call("vec_new", &[]), |vec, item| env_call("vec_push_back", &[vec, item.clone()]))
}

/// Returns a map from short symbols to values.
pub fn map_of(entries: &[(&str, String)]) -> String {
    entries.iter().fold(env_call("map_new", &[]), |map, (key, value)| {
        env_call("map_put", &[map, sym(key), value.clone()])
    })
}

/// Address in memory at which data begins.
const DATA: u32 = 1024;

/// Data segment of a module, which its functions refer to.
#[derive(Default)]
pub struct Data(Vec<u8>);

impl Data {
    /// Adds bytes to the data; returns their position and length.
    pub fn place(&mut self, bytes: &[u8]) -> (u32, u32) {
        let at = DATA + self.0.len() as u32;
        self.0.extend_from_slice(bytes);
        (at, bytes.len() as u32)
    }

    /// Like [`place`](Self::place), but returns two values.
    pub fn slice_args(&mut self, bytes: &[u8]) -> [String; 2] {
        let (at, len) = self.place(bytes);
        [u32v(at), u32v(len)]
    }

    /// Returns a new bytes object.
    pub fn bytes(&mut self, bytes: &[u8]) -> String {
        env_call("bytes_new_from_linear_memory", &self.slice_args(bytes))
    }

    /// Returns a new string.
    pub fn string(&mut self, text: &[u8]) -> String {
        env_call("string_new_from_linear_memory", &self.slice_args(text))
    }

    /// Returns a new symbol.
    pub fn symbol(&mut self, text: &[u8]) -> String {
        env_call("symbol_new_from_linear_memory", &self.slice_args(text))
    }

    /// Adds a list of slices in the format that functions of the environment read; returns its
    /// position.
    pub fn slices(&mut self, slices: &[&[u8]]) -> u32 {
        let list: Vec<u8> = slices
            .iter()
            .map(|slice| self.place(slice))
            .flat_map(|(at, len)| [at.to_le_bytes(), len.to_le_bytes()].concat())
            .collect();
        self.place(&list).0
    }

    /// Adds a list of small values; returns its position.
    pub fn vals(&mut self, vals: &[Val]) -> u32 {
        let list: Vec<u8> = vals.iter().flat_map(|val| val.get_payload().to_le_bytes()).collect();
        self.place(&list).0
    }

    /// Returns the memory with all data.
    pub fn memory(&self) -> String {
        let bytes: String = self.0.iter().map(|byte| format!("\\{byte:02x}")).collect();
        format!("(memory (export \"memory\") 2)\n(data (i32.const {DATA}) \"{bytes}\")\n")
    }
}
