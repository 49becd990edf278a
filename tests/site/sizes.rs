//! What the page of the state shows of contracts.

use serde_json::Value;

use orrery_testkit::binary::Service;
use orrery_testkit::wait::wait_until;

#[test]
fn a_service_estimates_contract_sizes() {
    let directory = tempfile::tempdir().unwrap();
    let (demo, _) = Service::demo(directory.path(), &[]);
    let contracts = wait_until("contracts with events", || {
        let (_, status) = demo.ask("/rest/status", None);
        let contracts = &status["contracts"];
        (!contracts["largest"].as_array()?.is_empty()).then(|| contracts.clone())
    });
    assert_eq!(contracts["sampled_ledgers"], contracts["of_ledgers"]);
    let largest: &Vec<Value> = contracts["largest"].as_array().unwrap();
    let shares = largest.iter().map(|it| it["share"].as_f64().unwrap());
    assert!((0.5..1.001).contains(&shares.sum::<f64>()), "{contracts}");
    demo.stop();
}
