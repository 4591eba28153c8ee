"""Which resources of a HardwareClass are devices, and which are parts of one."""

import pytest
from tailbound.api.devices import DeviceResource
from tailbound.api.hardwareclass import HardwareClassSpec

DEVICES = (
    "nvidia.com/gpu",
    "nvidia.com/gpu.shared",  # time-sliced
    "nvidia.com/mig-1g.10gb",
    "nvidia.com/mig-3g.40gb.me",
    "amd.com/gpu",
    "amd.com/cpx_nps4",
    "gpu.intel.com/i915",
    "gpu.intel.com/xe",
    "habana.ai/gaudi",
    "npu.intel.com/accel",
    "huawei.com/Ascend910",
    "google.com/tpu",
    "aws.amazon.com/neuron",
    "aws.amazon.com/neuroncore",
    "cambricon.com/mlu",
    "volcano.sh/vgpu-number",
    "deviceclass.resource.kubernetes.io/gpu.example.com",
    "deviceclass.resource.kubernetes.io/large-memory",
    "devices.example.com/team-memory-lab-x",
)
OTHERS = (
    "nvidia.com/gpumem",
    "nvidia.com/gpumem-percentage",
    "nvidia.com/gpucores",
    "nvidia.com/priority",
    "volcano.sh/vgpu-memory",
    "volcano.sh/vgpu-cores",
    "volcano.sh/vgpu-memory-percentage",
    "volcano.sh/gpu-memory",
    "aliyun.com/gpu-mem",
    "aliyun.com/gpu-core.percentage",
    "tencent.com/vcuda-core",
    "tencent.com/vcuda-memory",
    "koordinator.sh/gpu-core",
    "koordinator.sh/gpu-memory-ratio",
    "gpu.intel.com/millicores",
    "gpu.intel.com/memory.max",
    "gpu.intel.com/i915_monitoring",
    "huawei.com/Ascend310P-memory",
    "cambricon.com/mlu.smlu.vcore",
    "cambricon.com/mlu.smlu.vmemory",
    "hygon.com/dcumem",
    "vpc.amazonaws.com/efa",
    "nvidia.com/hostdev",
)


@pytest.mark.parametrize(("names", "devices"), [(DEVICES, 2), (OTHERS, 0)], ids=["devices", "others"])
def test_known_names_count_devices_or_parts_of_them(names: tuple[str, ...], devices: int) -> None:
    found = {name: DeviceResource.model_validate({"name": name, "count": 2}).devices for name in names}
    assert found == dict.fromkeys(names, devices)


def test_parts_of_a_device_are_neither_refused_nor_summed() -> None:
    resources = [
        {"name": "nvidia.com/gpu", "count": 1},
        {"name": "nvidia.com/gpumem", "count": 8000},
        {"name": "gpu.intel.com/memory.max", "count": 8 * 1024**3},
        {"name": "vendor.example.com/slices", "count": 2000, "unit": "Other"},
        {"name": "vendor.example.com/mem", "count": 2, "unit": "Device"},
    ]
    assert HardwareClassSpec.model_validate({"resources": resources}).devices == 3
