"""A worker that admits, sends and settles as fast as it can until it is killed; run as a process by the crash test."""

import sys
from pathlib import Path
from random import Random

from eagletui.ledger.orders import AdmitRequest, Failed, Finished
from eagletui.ledger.writer import LedgerWriter
from tests.ledger.build import answer, tokens


def main(path: Path, witness: Path, seed: int) -> None:
    """Work on the ledger, and write every admitted attempt to a file of our own before it counts as sent."""
    random = Random(seed)
    with LedgerWriter(path) as writer, witness.open("a", buffering=1) as sent:
        writer.recover()
        writer.beat("engine", ready=True)
        while True:
            queued = writer.claim(4)
            admissions = writer.admit(
                [AdmitRequest(sample.id, "alpha", random.randint(0, 900), streamed=True) for sample in queued]
            )
            attempts = [admission.attempt_id for admission in admissions if admission.attempt_id is not None]
            if not attempts:
                writer.set_cap(writer.run().cap_pico + 2_000)
            for attempt in attempts:
                writer.mark_sent([attempt])
                sent.write(f"{attempt}\n")
            for attempt in attempts:
                match random.randrange(4):
                    case 0:
                        failed = Failed("unsettled", "disconnected", "gone", retry_at=1.0)
                        writer.finish([Finished(attempt, failed)])
                    case 1:
                        writer.finish([Finished(attempt, answer(None, result=tokens()))])
                    case _:
                        writer.finish([Finished(attempt, answer(random.randint(0, 100), result=tokens()))])
            for waiting in writer.open_attempts()[:2]:
                writer.settle(waiting.id, waiting.hold_pico // 2)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
