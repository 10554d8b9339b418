# SPDX-License-Identifier: Apache-2.0
"""Has the vocabulary every field of resource.k8s.io/v1?"""

import subprocess
import sys

import msgspec
import pytest

from dra_driver.model.api import resource_claim, resource_slice

# k8s.io/api v0.37.1, resource/v1/types.go: each struct and the names of its fields on the wire. Embedded structs are written out.
# Condition is metav1.Condition: k8s.io/apimachinery v0.37.1, pkg/apis/meta/v1/types.go.
FIELDS = """
ResourceSlice: metadata spec
ResourceSliceSpec: driver pool nodeName nodeSelector allNodes devices perDeviceNodeSelection sharedCounters partitionTypeAttribute skipNodeOperations
CounterSet: name counters
ResourcePool: name generation resourceSliceCount
Device: name attributes capacity consumesCounters nodeName nodeSelector allNodes taints bindsToNode bindingConditions bindingFailureConditions allowMultipleAllocations nodeAllocatableResources
NodeAllocatableResource: mapping overhead
NodeAllocatableMapping: capacityKey capacityMultiplier deviceMultiplier
NodeAllocatableOverhead: perPod perContainer
DeviceCounterConsumption: counterSet counters compatibilityGroups
DeviceCapacity: value requestPolicy
Counter: value
CapacityRequestPolicy: default validValues validRange
CapacityRequestPolicyRange: min max step
DeviceAttribute: int bool string version ints bools strings versions
DeviceTaint: key value effect timeAdded
DeviceTaintRule: metadata spec status
DeviceTaintRuleSpec: deviceSelector taint
DeviceTaintSelector: driver pool device
DeviceTaintRuleStatus: conditions
ResourceClaim: metadata spec status
ResourceClaimSpec: devices
DeviceClaim: requests constraints config
DeviceRequest: name exactly firstAvailable
ExactDeviceRequest: deviceClassName selectors allocationMode count adminAccess tolerations capacity derivedAttributes
DeviceSubRequest: name deviceClassName selectors allocationMode count tolerations capacity derivedAttributes
CapacityRequirements: requests
DeviceSelector: cel
CELDeviceSelector: expression
DeviceDerivedAttribute: name expression
DeviceConstraint: requests matchAttribute distinctAttribute
DeviceClaimConfiguration: requests opaque
OpaqueDeviceConfiguration: driver parameters
DeviceToleration: key operator value effect tolerationSeconds
ResourceClaimStatus: allocation reservedFor devices
ResourceClaimConsumerReference: apiGroup resource name uid
AllocationResult: devices nodeSelector allocationTimestamp
DeviceAllocationResult: results config
DeviceRequestAllocationResult: request driver pool device adminAccess tolerations bindingConditions bindingFailureConditions shareID consumedCapacity skipNodeOperations
DeviceAllocationConfiguration: source requests opaque
DeviceClass: metadata spec
DeviceClassSpec: selectors config extendedResourceName
DeviceClassConfiguration: opaque
ResourceClaimTemplate: metadata spec
ResourceClaimTemplateSpec: metadata spec
AllocatedDeviceStatus: driver pool device shareID conditions data networkData
NetworkDeviceData: interfaceName ips hardwareAddress
Condition: type status observedGeneration lastTransitionTime reason message
"""


@pytest.mark.parametrize("line", FIELDS.split("\n")[1:-1])
def test_every_field_of_kubernetes_is_there(line: str) -> None:
    name, _, fields = line.partition(": ")
    kind = getattr(resource_slice, name, None) or getattr(resource_claim, name)
    found = {field.encode_name for field in msgspec.structs.fields(kind)}
    assert found == set(fields.split())


AT_ONCE = """
import sys, threading
import msgspec
from dra_driver.model.api.resource_claim import ResourceClaim
from dra_driver.model.api.resource_slice import ResourceSlice

sys.setswitchinterval(1e-6)
device = {"name": "x", "taints": [{"key": "a"}], "attributes": {"a": {"int": 1}}}
objects = [
    (ResourceSlice, {"metadata": {"ownerReferences": [{"name": "a"}]}, "spec": {"devices": [device]}}),
    (ResourceClaim, {"status": {"allocation": {"devices": {"results": [{"device": "x"}]}}}}),
]
together = threading.Barrier(6)

def read(kind, item):
    together.wait()
    for _ in range(50):
        msgspec.convert(item, type=kind)

threads = [threading.Thread(target=read, args=objects[number % 2]) for number in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.parametrize("_again", range(6))
def test_threads_may_read_their_first_objects_at_the_same_moment(_again: int) -> None:
    """Without `learn` about every second of these processes ends with a segmentation fault."""
    done = subprocess.run([sys.executable, "-c", AT_ONCE], check=False, timeout=60)
    assert done.returncode == 0
