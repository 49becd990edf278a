//! Tests of faulty sources: outages, wrong data, wrong networks, resets. Wrong data is never
//! stored, and a source that recovers is used within ten seconds.

use std::time::Duration;

use orrery_ledger::domain::{LedgerSeq, Network};

use super::world::*;

const AT_ONCE: Duration = Duration::from_secs(10);

#[tokio::test(start_paused = true)]
async fn an_outage_of_half_an_hour_leaves_no_gap() {
    for mode in [Mode::Fails, Mode::Hangs, Mode::RangeOnly] {
        let only = provider(1000);
        let world = World::follow(task(990), &[("rpc", &only)], Stored::default());
        world.catches_up(&only).await;
        only.lock().mode = mode;
        minutes(30).await;
        assert!(world.down().is_some(), "{mode:?}");
        only.lock().mode = Mode::Good;
        let took = world.catches_up(&only).await;
        // A hanging call has to time out before the next one.
        let limit = if mode == Mode::Hangs { Duration::from_secs(62) } else { AT_ONCE };
        assert!(took <= limit, "{mode:?}: {took:?}");
        seconds(1).await;
        assert_eq!(world.detail(), "rpc");
        world.stored.assert_whole();
        world.following.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn shuffled_and_repeated_ledgers_are_accepted() {
    let only = provider(1000);
    only.lock().mode = Mode::Shuffles;
    let world = World::follow(task(900), &[("rpc", &only)], Stored::default());
    world.catches_up(&only).await;
    minutes(2).await;
    world.catches_up(&only).await;
    assert_eq!(world.down(), None);
    world.stored.assert_whole();
}

#[tokio::test(start_paused = true)]
async fn damaged_ledgers_are_never_stored() {
    for damage in [(|p: &mut Provider| p.damaged.insert(1010)) as fn(&mut Provider) -> bool, |p| {
        p.unlinked.insert(1010)
    }] {
        let only = provider(1000);
        damage(&mut only.lock());
        let world = World::follow(task(990), &[("rpc", &only)], Stored::default());
        minutes(2).await;
        let asked = only.lock().asked.len();
        minutes(3).await;
        assert_eq!(world.stored.latest(), Some(1009));
        let reason = world.down().unwrap();
        assert!(reason.starts_with("ledger 1010 "), "{reason}");
        assert!(
            !reason.contains("new, empty data directory"),
            "that would be bad advice: {reason}"
        );
        let asked = only.lock().asked.len() - asked;
        assert!((20..60).contains(&asked), "asked {asked} times in three minutes");

        only.lock().damaged.clear();
        only.lock().unlinked.clear();
        assert!(world.catches_up(&only).await <= AT_ONCE);
        seconds(1).await;
        assert_eq!(world.detail(), "rpc");
        world.stored.assert_whole();
        world.following.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_damaged_ledger_is_fetched_from_another_source() {
    let (first, second) = (provider(1000), provider(1000));
    first.lock().damaged.insert(1010);
    second.lock().unlinked.insert(1015);
    let world = World::follow(task(990), &[("rpc", &first), ("lake", &second)], Stored::default());
    minutes(3).await;
    assert!(world.catches_up(&first).await <= Duration::from_secs(1));
    assert_eq!(world.down(), None);
    world.stored.assert_whole();
    minutes(2).await;
    assert_eq!(world.detail(), "rpc", "the first source is used for later ledgers");
}

#[tokio::test(start_paused = true)]
async fn a_source_of_another_network_is_refused_by_name() {
    let only = provider(1000);
    only.lock().passphrase = "Public Global Stellar Network ; September 2015";
    let world = World::follow(task(None), &[("rpc", &only)], Stored::default());
    minutes(5).await;
    let reason = world.down().unwrap();
    assert!(reason.contains("of the network mainnet, not of \"Apply Load\""), "{reason}");
    assert!(reason.contains("another data directory"), "{reason}");
    assert_eq!(world.stored.latest(), None);
    assert_eq!(world.health.network_latest(), None, "another network's tip is not this one's");
    only.lock().passphrase = "Apply Load";
    assert!(world.catches_up(&only).await <= AT_ONCE);
}

#[tokio::test(start_paused = true)]
async fn a_source_of_another_network_does_not_block_others() {
    let (first, second) = (provider(1000), provider(1000));
    first.lock().passphrase = "Test SDF Network ; September 2015";
    let world = World::follow(task(990), &[("rpc", &first), ("lake", &second)], Stored::default());
    assert!(world.catches_up(&second).await <= AT_ONCE);
    minutes(3).await;
    assert!(world.detail().starts_with("lake, because rpc yields ledgers of the network testnet"));
    assert!(first.lock().asked.is_empty());
}

/// The network restarts from genesis, as testnet does a few times a year.
#[tokio::test(start_paused = true)]
async fn a_network_reset_stops_ingestion_and_names_the_remedy() {
    let reset = |provider: &Shared, tip| {
        let mut provider = provider.lock();
        (provider.chain, provider.tip) = (1, tip);
    };
    // The tip is far below the stored ledgers, about equal to them, or beyond them.
    for tip in [100, 2000, 5000] {
        let (first, second) = (provider(1000), provider(1000));
        let world =
            World::follow(task(50), &[("rpc", &first), ("lake", &second)], Stored::default());
        world.catches_up(&first).await;
        reset(&first, tip);
        reset(&second, tip);
        minutes(2).await;
        let stored = world.stored.latest();
        let reason = world.down().unwrap();
        assert!(reason.starts_with("rpc and lake has another ledger") || tip == 2000, "{reason}");
        assert!(reason.contains("a new, empty data directory"), "{tip}: {reason}");
        minutes(30).await;
        assert_eq!(world.stored.latest(), stored, "ingestion has stopped");
        world.stored.assert_whole();
        // The providers return to the original chain.
        (first.lock().chain, first.lock().tip) = (0, 6000);
        assert!(world.catches_up(&first).await <= Duration::from_secs(60));
        world.stored.assert_whole();
        world.following.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_reset_is_recognised_without_a_common_ledger() {
    let only = provider(100_000);
    let testnet = Network::from_name_or_passphrase("testnet");
    only.lock().passphrase = "Test SDF Network ; September 2015";
    let world = World::on(testnet, task(None), &[("rpc", &only)], Stored::default());
    minutes(2).await;
    (only.lock().chain, only.lock().tip) = (1, 20);
    minutes(1).await;
    let reason = world.down().unwrap();
    assert!(reason.contains("testnet was reset; ingestion has stopped"), "{reason}");
    assert_eq!(world.health.network_latest(), world.stored.latest().map(LedgerSeq));
}

#[tokio::test(start_paused = true)]
async fn a_source_on_another_chain_is_not_used() {
    let (first, second) = (provider(1000), provider(1000));
    let world = World::follow(task(990), &[("rpc", &first), ("lake", &second)], Stored::default());
    world.catches_up(&first).await;
    first.lock().chain = 1;
    minutes(10).await;
    assert!(world.catches_up(&second).await <= Duration::from_secs(1));
    let detail = world.detail();
    assert!(detail.starts_with("lake, because ledger"), "{detail}");
    world.stored.assert_whole();
    first.lock().chain = 0;
    minutes(15).await;
    assert_eq!(world.detail(), "rpc");
    world.stored.assert_whole();
}
