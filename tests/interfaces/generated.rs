//! Generated interfaces over every type, nested, with events that fit and events that are broken in
//! one place.

use orrery_interfaces::{Interface, declaration, declaration_counted};
use orrery_testkit::random_events::Generator;
use orrery_testkit::size;

use crate::made::reconstructed;

#[test]
fn events_fit_exactly_when_every_value_is_of_its_type() {
    let (mut fitting, mut broken) = (0, 0);
    for seed in 0..size::choose(400, 20_000) {
        let mut generator = Generator::new(seed, false);
        let declared = generator.declared();
        let interface = Interface::from_entries(generator.entries(&declared)).unwrap();
        let params = declared.topics.len() + declared.data.len();
        for _ in 0..5 {
            let (topics, data) = generator.event(&declared, None).unwrap();
            let matched = declaration(&[&interface], &topics, &data)
                .unwrap_or_else(|| panic!("seed {seed}: {topics:?} {data:?}"));
            // Those that the event has: a map may lack keys.
            assert!(matched.parameters.len() <= params);
            assert_eq!(reconstructed(&matched, &topics), (topics.clone(), data.clone()));
            fitting += 1;
        }
        for at in 0..params {
            let Some((topics, data)) = generator.event(&declared, Some(at)) else { continue };
            let (matched, _) = declaration_counted(&[&interface], &topics, &data);
            let problem = || format!("seed {seed}, parameter {at}: {topics:?} {data:?}");
            assert!(matched.is_none(), "{}", problem());
            broken += 1;
        }
    }
    println!("{fitting} events that fit, {broken} that are broken in one place");
    assert!(fitting > 1_000 && broken > 500);
}
