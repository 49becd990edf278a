;; A contract that emits what it is told, and keeps what it is told: enough to be a smart account or a passkey wallet to
;; whoever reads events. The host's functions are x.1 contract_event, l._ put_contract_data and l.2 del_contract_data
;; (env.json of soroban-env-common); a storage type is the number in an argument, 0 temporary and 1 persistent.
(module
  (import "x" "1" (func (param i64 i64) (result i64)))
  (import "l" "_" (func (param i64 i64 i64) (result i64)))
  (import "l" "2" (func (param i64 i64) (result i64)))
  (memory (export "memory") 1)
  (func (export "emit") (param i64 i64) (result i64)
    (call 0 (local.get 0) (local.get 1)))
  (func (export "put") (param i64 i64 i64 i64 i64) (result i64)
    (drop (call 0 (local.get 0) (local.get 1)))
    (call 1 (local.get 2) (local.get 3) (i64.shr_u (local.get 4) (i64.const 32))))
  (func (export "del") (param i64 i64 i64 i64) (result i64)
    (drop (call 0 (local.get 0) (local.get 1)))
    (call 2 (local.get 2) (i64.shr_u (local.get 3) (i64.const 32))))
  (@custom "contractenvmetav0" "\00\00\00\00\00\00\00\1a\00\00\00\00"))
