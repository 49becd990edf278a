;; A pool: it emits what it is told, keeps what it is told, takes other code, or fails. The host's functions are x.1
;; contract_event, l._ put_contract_data and l.6 update_current_contract_wasm (env.json of soroban-env-common); a storage
;; type is the number in an argument, 0 temporary, 1 persistent and 2 that of the instance.
(module
  (import "x" "1" (func (param i64 i64) (result i64)))
  (import "l" "_" (func (param i64 i64 i64) (result i64)))
  (import "l" "6" (func (param i64) (result i64)))
  (memory (export "memory") 1)
  (func (export "swap") (param i64 i64) (result i64)
    (call 0 (local.get 0) (local.get 1)))
  (func (export "put") (param i64 i64 i64) (result i64)
    (call 1 (local.get 0) (local.get 1) (i64.shr_u (local.get 2) (i64.const 32))))
  (func (export "upgrade") (param i64) (result i64)
    (call 2 (local.get 0)))
  (func (export "fail") (result i64)
    unreachable)
  (@custom "contractenvmetav0" "\00\00\00\00\00\00\00\1a\00\00\00\00"))
