# SPDX-License-Identifier: Apache-2.0
"""What does an XID mean, and what must be done about it? NVIDIA's XID catalogue for Ampere and newer, as data.

The kernel driver reports an error as a number, the XID. NVIDIA's catalogue has an immediate action for each; the driver follows
that column, so there is no list of "ignored" numbers that grows old. The severity and the words are this project's. The library
tells the number only: what the catalogue decodes from further fields (74, 144 to 150) is judged by its worst case, and field 230 of
the GPU, the recovery action, says then how bad it is. docs/reference/xids.md is made from here.

Source: docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html. Codes that the catalogue calls unused are left out.
"""

from collections.abc import Mapping
from enum import IntEnum

from msgspec import Struct


class Severity(IntEnum):
    """What a GPU needs, from nothing to everything. From DRAIN on, no new claim gets it."""

    FINE = 0
    """Nothing: an application failed, or the GPU helped itself. It is counted."""
    WATCHED = 1
    """Nothing yet; an admin may want to plan something."""
    DRAIN = 2
    """Running work is safe, new work should go elsewhere."""
    RESET = 3
    REBOOT = 4
    SERVICE = 5
    """A person has to look at the hardware, or to ask its vendor."""
    LOST = 6
    """The GPU does not answer."""


class Action(Struct, frozen=True):
    """A recommended immediate action of the catalogue, the severity that follows, and what an admin does."""

    severity: Severity
    advice: str


class Xid(Struct, frozen=True):
    """One code. `action` is empty if the catalogue recommends none."""

    code: int
    name: str
    meaning: str
    action: str
    severity: Severity
    advice: str


RESET_ADVICE = (
    "end the pods that use the GPU, let the driver let go of it (dra-driver hardware --let-go, docs/nvidia.md), and reset it: "
    "nvidia-smi --gpu-reset -i GPU-UUID"
)
_REBOOT = "drain the node and reboot it; if the error comes back, ask the vendor of the machine"
_LINK = f"look at the links (nvidia-smi nvlink -s); {RESET_ADVICE}"

ACTIONS: Mapping[str, Action] = {
    "": Action(Severity.WATCHED, "the catalogue recommends nothing; watch whether it comes back"),
    "IGNORE": Action(Severity.FINE, "nothing to do"),
    "RESTART_APP": Action(Severity.FINE, "restart the application if it has not ended itself"),
    "WORKFLOW_XID_45": Action(Severity.FINE, "look for the error that came before it"),
    "XID_154": Action(
        Severity.FINE, "nothing of its own: the driver reads the recovery action itself"
    ),
    "RESET_GPU": Action(Severity.RESET, RESET_ADVICE),
    "WORKFLOW_XID_48": Action(Severity.RESET, RESET_ADVICE),
    "WORKFLOW_NVLINK_ERR": Action(Severity.RESET, _LINK),
    "WORKFLOW_NVLINK5_ERR": Action(Severity.RESET, _LINK),
    "CHECK_UVM": Action(Severity.RESET, RESET_ADVICE),
    "RESTART_VM": Action(Severity.REBOOT, "restart the virtual machine, or the node"),
    "RESTART_BM": Action(Severity.REBOOT, _REBOOT),
    "UPDATE_SWFW": Action(Severity.WATCHED, "update the driver and the firmware of the GPU"),
    "CHECK_MECHANICALS": Action(Severity.SERVICE, "look at the cables and the seat of the board"),
    "CONTACT_SUPPORT": Action(Severity.SERVICE, "ask the vendor of the machine"),
}

# The engines of a GPU, and the codes of their errors. All are errors of the work that runs on them.
_ENGINES: tuple[tuple[str, str, tuple[int, ...]], ...] = (
    ("CE", "copy engine", (39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136))),
    ("NVDEC", "video decoder", (68, 83, 84, 88, 89, 96, 97, 98)),
    ("NVJPG", "JPEG decoder", (82, *range(99, 106))),
    ("OFA", "optical flow engine", (86, 139)),
)

# Code, mnemonic, meaning, action; then a severity that differs from the action's.
_ROWS: tuple[tuple[int, str, str, str] | tuple[int, str, str, str, Severity], ...] = (
    (8, "ROBUST_CHANNEL_FIFO_ERROR_IDLE_TIMEOUT", "a channel made no progress", "RESTART_APP"),
    (11, "ROBUST_CHANNEL_GR_ERROR_MISSING_HW", "wrong commands from a program", "RESTART_APP"),
    (13, "ROBUST_CHANNEL_GR_EXCEPTION", "a program failed on the GPU", "RESTART_APP"),
    (14, "ROBUST_CHANNEL_FAKE_ERROR", "a test of error handling", "IGNORE"),
    (25, "ROBUST_CHANNEL_GR_ILLEGAL_NOTIFY", "wrong commands from a program", "RESTART_APP"),
    (31, "ROBUST_CHANNEL_FIFO_ERROR_MMU_ERR_FLT", "a program used a wrong address", "RESTART_APP"),
    (32, "ROBUST_CHANNEL_PBDMA_ERROR", "commands arrived damaged", "RESTART_APP"),
    (37, "ROBUST_CHANNEL_FECS_ERR_UNIMP_FIRMWARE_METHOD", "unknown call of firmware", "IGNORE"),
    (38, "ROBUST_CHANNEL_FECS_ERR_WATCHDOG_TIMEOUT", "firmware was slow", "IGNORE"),
    (43, "ROBUST_CHANNEL_RESETCHANNEL_VERIF_ERROR", "a program failed and was ended", "IGNORE"),
    (44, "ROBUST_CHANNEL_GR_FAULT_DURING_CTXSW", "fault while programs changed", "IGNORE"),
    (45, "ROBUST_CHANNEL_PREEMPTIVE_REMOVAL", "a program was ended early", "WORKFLOW_XID_45"),
    (46, "ROBUST_CHANNEL_GPU_TIMEOUT_ERROR", "the GPU stopped working", "RESET_GPU"),
    (48, "ROBUST_CHANNEL_GPU_ECC_DBE", "memory error that ECC cannot correct", "WORKFLOW_XID_48"),
    (54, "SILENT_RUNNING_PWR_REDUCED_CLOCKING", "board lacks its power cable", "CHECK_MECHANICALS"),
    (60, "ROBUST_CHANNEL_SEC2_ERROR", "security processor failed", "RESTART_APP"),
    (62, "PMU_HALT_ERROR", "a controller of the GPU halted", "RESET_GPU"),
    (63, "INFOROM_DRAM_RETIREMENT_EVENT", "bad memory was replaced by spare memory", "IGNORE"),
    (64, "INFOROM_DRAM_RETIREMENT_FAILURE", "bad memory could not be replaced", "RESET_GPU"),
    (66, "ROBUST_CHANNEL_FECS_ERR_REG_ACCESS_VIOLATION", "wrong access by the driver", "IGNORE"),
    (67, "ROBUST_CHANNEL_FECS_ERR_VERIF_VIOLATION", "wrong access by the driver", "IGNORE"),
    (69, "ROBUST_CHANNEL_GR_CLASS_ERROR", "wrong commands from a program", "RESTART_APP"),
    (74, "NVLINK_ERROR", "a link to another GPU or a switch failed", "WORKFLOW_NVLINK_ERR"),
    (78, "VGPU_START_ERROR", "a virtual GPU did not start", "UPDATE_SWFW"),
    (79, "ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS", "the GPU left the PCI bus", "RESTART_BM"),
    (80, "PBDMA_PUSHBUFFER_CRC_MISMATCH", "commands arrived damaged", "RESTART_APP"),
    (92, "EXCESSIVE_SBE_INTERRUPTS", "many corrected memory errors", "IGNORE", Severity.WATCHED),
    (93, "INFOROM_ERASE_LIMIT_EXCEEDED", "wear limit of the InfoROM", "IGNORE"),
    (94, "ROBUST_CHANNEL_CONTAINED_ERROR", "memory error in one program only", "RESTART_APP"),
    (95, "ROBUST_CHANNEL_UNCONTAINED_ERROR", "memory error in several programs", "RESET_GPU"),
    (106, "SMBPBI_TEST_MESSAGE", "a test message", "IGNORE"),
    (107, "SMBPBI_TEST_MESSAGE_SILENT", "a test message", "IGNORE"),
    (108, "NVLINK_REMOTE_TRANSLATION_ERROR", "wrong address on another GPU", "IGNORE"),
    (109, "ROBUST_CHANNEL_CTXSW_TIMEOUT_ERROR", "programs could not be changed", "RESET_GPU"),
    (110, "SEC_FAULT_ERROR", "security fault", "RESET_GPU"),
    (119, "GSP_RPC_TIMEOUT", "the GPU's own processor does not answer", "RESET_GPU"),
    (120, "GSP_ERROR", "the GPU's own processor failed", "RESET_GPU"),
    (121, "C2C_ERROR", "corrected errors on the link to the CPU", "IGNORE"),
    (136, "ALI_TRAINING_FAIL", "a link did not come up", "RESET_GPU"),
    (137, "NVLINK_PRIV_ERR", "a program used a wrong address on another GPU", "IGNORE"),
    (140, "UNRECOVERABLE_ECC_ERROR_ESCAPE", "memory error that was not contained", "RESET_GPU"),
    (141, "ROBUST_CHANNEL_FAST_PATH_ERROR", "error of a fast path of CUDA", "IGNORE"),
    (142, "ROBUST_CHANNEL_NVENC3_ERROR", "video encoder failed", "CONTACT_SUPPORT"),
    (143, "GPU_INIT_ERROR", "the GPU did not start", "RESET_GPU"),
    (144, "NVLINK_SAW_ERROR", "error of an NVLink", "WORKFLOW_NVLINK5_ERR"),
    (145, "NVLINK_RLW_ERROR", "error of an NVLink", "WORKFLOW_NVLINK5_ERR"),
    (146, "NVLINK_TLW_ERROR", "error of an NVLink", "WORKFLOW_NVLINK5_ERR"),
    (147, "NVLINK_TREX_ERROR", "error of an NVLink", "WORKFLOW_NVLINK5_ERR", Severity.WATCHED),
    (148, "NVLINK_NVLPW_CTRL_ERROR", "NVLink power", "WORKFLOW_NVLINK5_ERR", Severity.WATCHED),
    (149, "NVLINK_NETIR_ERROR", "error of an NVLink", "WORKFLOW_NVLINK5_ERR"),
    (150, "NVLINK_MSE_ERROR", "error of an NVLink", "WORKFLOW_NVLINK5_ERR"),
    (151, "ROBUST_CHANNEL_KEY_ROTATION_ERROR", "new keys could not be made", "RESTART_VM"),
    (152, "ROBUST_CHANNEL_DLA_SMMU_ERROR", "wrong address of a DLA", "IGNORE"),
    (153, "ROBUST_CHANNEL_DLA_TIMEOUT", "a DLA was slow", "IGNORE"),
    (154, "GPU_RECOVERY_ACTION_CHANGED", "the recovery action changed", "XID_154"),
    (155, "NVLINK_SW_DEFINED_ERROR", "software took an NVLink down", "RESET_GPU"),
    (156, "RESOURCE_RETIREMENT_EVENT", "a part of the GPU was retired", "RESET_GPU"),
    (157, "RESOURCE_RETIREMENT_FAILURE", "no spare part is left", "IGNORE", Severity.WATCHED),
    (158, "GPU_FATAL_TIMEOUT", "the GPU stopped working", "RESET_GPU"),
    (159, "ROBUST_CHANNEL_CHI_NON_DATA_ERROR", "error on the link to the CPU", "CHECK_UVM"),
    (160, "CHANNEL_RETIREMENT_EVENT", "a memory channel was retired", "IGNORE"),
    (161, "CHANNEL_RETIREMENT_FAILURE", "no spare channel", "IGNORE", Severity.WATCHED),
    (162, "PSHC_REENGAGED", "power smoothing works again", "", Severity.FINE),
    (163, "PSHC_DISENGAGED", "power smoothing stopped", ""),
    (164, "PSHC_LOW_LIFETIME", "power smoothing nears its end of life", ""),
    (165, "PSHC_ZERO_LIFETIME", "power smoothing is worn out", ""),
    (166, "NVLINK_SECURE_CRYPTO_ERR", "NVLink not yet encrypted", "", Severity.RESET),
    (167, "PCIE_FATAL_TIMEOUT", "PCI Express did not answer", "", Severity.RESET),
    (168, "REDUCED_GPU_MEMORY_CAPACITY", "a part of the memory is not usable", ""),
    (169, "SEC2_HALT_ERROR", "a controller of the GPU halted", "", Severity.RESET),
    (170, "NVLINK_SECURE_OTHER", "error of an encrypted NVLink", "", Severity.RESET),
    (171, "UNCORRECTABLE_DRAM_ERROR", "XID 48 was in the DRAM", ""),
    (172, "UNCORRECTABLE_SRAM_ERROR", "XID 48 was in an SRAM", ""),
)


def _of_engines() -> dict[int, Xid]:
    action = ACTIONS["RESTART_APP"]
    return {
        code: Xid(
            code,
            f"ROBUST_CHANNEL_{short}{number}_ERROR",
            f"{what} {number} failed",
            "RESTART_APP",
            action.severity,
            action.advice,
        )
        for short, what, codes in _ENGINES
        for number, code in enumerate(codes)
    }


def _of_rows() -> dict[int, Xid]:
    found = {}
    for code, name, meaning, action, *other in _ROWS:
        severity = other[0] if other else ACTIONS[action].severity
        advice = ACTIONS[action].advice if severity < Severity.RESET or action else RESET_ADVICE
        found[code] = Xid(code, name, meaning, action, severity, advice)
    return found


XIDS: Mapping[int, Xid] = dict(sorted((_of_engines() | _of_rows()).items()))


def xid(code: int) -> Xid:
    """Return what is known of this code. One that the catalogue does not have, or calls unused, is taken for a reason to reset."""
    return XIDS.get(code) or Xid(
        code,
        "",
        "an error that this version of the driver does not know",
        "",
        Severity.RESET,
        f"look it up in NVIDIA's XID catalogue; if it has no advice, {RESET_ADVICE}",
    )
