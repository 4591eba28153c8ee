"""The signatures of both models of a rollout: what is known, what to ask for, and the condition. Pure.

What is known of a revision (`known`), first row that fits:

| what there is | signature |
|---|---|
| one on its ControllerRevision | that one |
| its server speaks no Open Inference Protocol over HTTP, and has no path of metadata | Unknown |
| an answer of one of its pods, or that there is none | that |
| a ready pod that can be asked | awaited |
| no ready pod, and it is the candidate | awaited |
| anything else | Unknown |

The condition (`verdict`):

| rollout | both signatures | status | reason |
|---|---|---|---|
| any | one is awaited | Unknown | Pending |
| any | one is not known | Unknown | SignatureUnknown |
| any | the same | False | SignatureUnchanged |
| promoted | differ | False | SignatureAccepted |
| any other | differ | True | SignatureChanged |

Once the rollout is over, nothing is asked for, and what is not known changes no condition.
"""

from collections.abc import Iterator

from tailbound.api.conditions import Reason
from tailbound.api.inference_paths import MODEL, OIP_METADATA_PATH
from tailbound.api.rollout import RolloutState
from tailbound.api.runtime_contract import HTTP_PORT_NAME, SERVER_CONTAINER
from tailbound.objects.signature import ModelSignature
from tailbound.objects.unknown import Unknown
from tailbound.reconcile.condition_verdict import FALSE, TRUE, UNKNOWN, ConditionVerdict
from tailbound.reconcile.model import SignatureRequest
from tailbound.reconcile.owned_state import OwnedState
from tailbound.rollout.progress import RolloutProgress
from tailbound.rollout.signature import (
    CompareResult,
    SignatureAwaited,
    SignatureComparison,
    compared,
    listed,
)


def comparison(owned: OwnedState, stable: str, candidate: str) -> CompareResult:
    """The candidate's signature beside stable's."""
    old, new = known(owned, stable, stable=True), known(owned, candidate, stable=False)
    for each in (old, new):
        if isinstance(each, SignatureAwaited | Unknown):
            return each
    assert isinstance(old, ModelSignature), "everything else was returned"
    assert isinstance(new, ModelSignature), "everything else was returned"
    return compared(old, new)


def known(owned: OwnedState, name: str, *, stable: bool) -> ModelSignature | SignatureAwaited | Unknown:
    """The signature of one revision's model."""
    marks, record, answers = owned.marks.get(name), owned.revision(name), owned.observation.signatures
    if marks is not None and marks.signature is not None:
        return marks.signature
    if record is not None and record.metadata_path is None:
        return Unknown(
            f"the server of {name} does not speak the Open Inference Protocol, and its runtime has no "
            "metadataPath"
        )
    if isinstance(answers, Unknown):
        return answers
    answer = answers.get(name)
    if answer is not None:
        return Unknown(f"{name}: {answer.reason}") if isinstance(answer, Unknown) else answer
    if any(_urls(owned, name)) or not (stable or owned.ready_names.get(name)):
        return SignatureAwaited(name, stable)
    return Unknown(f"{name} has no ready pod that could state the inputs and outputs of its model")


def answered(owned: OwnedState, name: str) -> ModelSignature | None:
    """What a pod of this revision has just answered."""
    answers = owned.observation.signatures
    found = answers.get(name) if not isinstance(answers, Unknown) else None
    return found if isinstance(found, ModelSignature) else None


def unread(owned: OwnedState, rollout: RolloutProgress | None) -> Iterator[SignatureRequest]:
    """What to ask for: the signatures that are not stored of both revisions of a rollout under way."""
    if rollout is None or rollout.state.is_over or not rollout.from_revision:
        return
    for name in (rollout.from_revision, rollout.revision):
        marks, urls = owned.marks.get(name), tuple(_urls(owned, name))
        if urls and (marks is None or marks.signature is None):
            yield SignatureRequest(name, urls)


def verdict(owned: OwnedState, rollout: RolloutProgress | None) -> ConditionVerdict | None:
    """The condition; None where it stays as it is, or absent."""
    if rollout is None or not rollout.from_revision:
        return None
    found = comparison(owned, rollout.from_revision, rollout.revision)
    if isinstance(found, SignatureComparison):
        return _compared(found, rollout)
    if rollout.is_over:
        return None
    if isinstance(found, Unknown):
        message = f"{_models(rollout)} were not compared: {found.reason}"
        return ConditionVerdict(UNKNOWN, Reason.SIGNATURE_UNKNOWN, message)
    message = f"a pod of {found.revision} is asked for the inputs and outputs of its model once it is ready"
    return ConditionVerdict(UNKNOWN, Reason.PENDING, message)


def _compared(found: SignatureComparison, rollout: RolloutProgress) -> ConditionVerdict:
    if not found.differences:
        message = f"{_models(rollout)} have the same inputs and outputs"
        return ConditionVerdict(FALSE, Reason.SIGNATURE_UNCHANGED, message)
    message = f"{_models(rollout)} have different inputs or outputs: {listed(found.differences)}"
    if rollout.state is RolloutState.PROMOTED:
        return ConditionVerdict(FALSE, Reason.SIGNATURE_ACCEPTED, message)
    return ConditionVerdict(TRUE, Reason.SIGNATURE_CHANGED, message)


def _models(rollout: RolloutProgress) -> str:
    return f"the models of {rollout.from_revision} and {rollout.revision}"


def _urls(owned: OwnedState, name: str) -> Iterator[str]:
    """The addresses at which ready pods of a revision state the metadata of their model."""
    ready, record = owned.ready_names.get(name, frozenset()), owned.revision(name)
    path = record.metadata_path if record is not None else OIP_METADATA_PATH
    if path is None:
        return
    for pod in owned.live_pods.get(name, ()):
        port = pod.port(SERVER_CONTAINER, HTTP_PORT_NAME)
        if pod.name in ready and pod.pod_ip and port is not None:
            yield f"http://{pod.host}:{port}{path.replace(MODEL, owned.service.metadata.name)}"
