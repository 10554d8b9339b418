// SPDX-License-Identifier: Apache-2.0

//go:build kubernetes37

package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

func init() {
	modes["allocate"] = answerAllocation
	modes["bench-allocate"] = benchAllocation
}

// selectorCacheSize is generous: the scheduler's own has 10 entries, which changes times only.
const selectorCacheSize = 1000

// cluster is what an allocation depends on besides the node and the claims.
type cluster struct {
	Name           string                       `json:"name"`
	Implementation string                       `json:"impl"`
	Features       []string                     `json:"features"`
	Classes        []*resourceapi.DeviceClass   `json:"classes"`
	Slices         []*resourceapi.ResourceSlice `json:"slices"`
	// Devices are named "driver/pool/device", shares "driver/pool/device/share".
	AllocatedDevices         []string                                                   `json:"allocatedDevices"`
	AllocatedSharedDeviceIDs []string                                                   `json:"allocatedSharedDeviceIDs"`
	AllocatedCapacity        map[string]map[resourceapi.QualifiedName]resource.Quantity `json:"allocatedCapacity"`
}

type allocationProblem struct {
	cluster
	Node   *corev1.Node                 `json:"node"`
	Claims []*resourceapi.ResourceClaim `json:"claims"`
}

type allocationAnswer struct {
	Name    string                         `json:"name"`
	Results []resourceapi.AllocationResult `json:"results"`
	Error   string                         `json:"error"`
	// With -details only: does the error rule out this node alone, and how often did the search try
	// a device or a request?
	OnlyThisNode *bool  `json:"onlyThisNode,omitempty"`
	Steps        *int64 `json:"steps,omitempty"`
}

// classLister answers from the problem as the scheduler's informer does.
type classLister []*resourceapi.DeviceClass

func (l classLister) List() ([]*resourceapi.DeviceClass, error) {
	return l, nil
}

func (l classLister) Get(name string) (*resourceapi.DeviceClass, error) {
	for _, class := range l {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, apierrors.NewNotFound(resourceapi.Resource("deviceclass"), name)
}

func switches(features *structured.Features) map[string]*bool {
	return map[string]*bool{
		"DRAAdminAccess":               &features.AdminAccess,
		"DRADeviceCompatibilityGroups": &features.CompatibilityGroups,
		"DRAConsumableCapacity":        &features.ConsumableCapacity,
		"DRADerivedAttributes":         &features.DerivedAttributes,
		"DRADeviceBindingConditions+DRAResourceClaimDeviceStatus": &features.DeviceBindingAndStatus,
		"DRADeviceTaints":            &features.DeviceTaints,
		"DRAFractionalCapacityRange": &features.FractionalCapacityRange,
		"DRAListTypeAttributes":      &features.ListTypeAttributes,
		"DRAOptionalNodeOperations":  &features.OptionalNodeOperations,
		"DRAPartitionableDevices":    &features.PartitionableDevices,
		"DRAPrioritizedList":         &features.PrioritizedList,
	}
}

func featuresNamed(names []string) (features structured.Features, err error) {
	known := switches(&features)
	for _, name := range names {
		if known[name] == nil {
			return features, fmt.Errorf("feature %q is unknown", name)
		}
		*known[name] = true
	}
	return features, nil
}

// deviceNamed takes "driver/pool/device" apart; a pool's name may have slashes of its own.
func deviceNamed(name string) (structured.DeviceID, error) {
	first, last := strings.Index(name, "/"), strings.LastIndex(name, "/")
	if first == last {
		return structured.DeviceID{}, fmt.Errorf("%q is not driver/pool/device", name)
	}
	return structured.MakeDeviceID(name[:first], name[first+1:last], name[last+1:]), nil
}

func shareNamed(name string) (structured.SharedDeviceID, error) {
	last := strings.LastIndex(name, "/")
	device, err := deviceNamed(name[:max(0, last)])
	if err != nil {
		return structured.SharedDeviceID{}, fmt.Errorf("%q is not driver/pool/device/share", name)
	}
	share := types.UID(name[last+1:])
	return structured.MakeSharedDeviceID(device, &share), nil
}

func (c cluster) allocated() (state structured.AllocatedState, err error) {
	state.AllocatedDevices = sets.New[structured.DeviceID]()
	state.AllocatedSharedDeviceIDs = sets.New[structured.SharedDeviceID]()
	state.AggregatedCapacity = structured.NewConsumedCapacityCollection()
	for _, name := range c.AllocatedDevices {
		device, err := deviceNamed(name)
		if err != nil {
			return state, err
		}
		state.AllocatedDevices.Insert(device)
	}
	for _, name := range c.AllocatedSharedDeviceIDs {
		share, err := shareNamed(name)
		if err != nil {
			return state, err
		}
		state.AllocatedSharedDeviceIDs.Insert(share)
	}
	for name, consumed := range c.AllocatedCapacity {
		device, err := deviceNamed(name)
		if err != nil {
			return state, err
		}
		state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(device, consumed))
	}
	return state, nil
}

// selectorCaches keeps one per set of gates, as the scheduler keeps one for all of its life.
var selectorCaches = map[cel.Features]*cel.Cache{}

func selectorCache(features structured.Features, fresh bool) *cel.Cache {
	wanted := cel.Features{
		EnableConsumableCapacity: features.ConsumableCapacity,
		EnableListTypeAttributes: features.ListTypeAttributes,
	}
	if fresh || selectorCaches[wanted] == nil {
		selectorCaches[wanted] = cel.NewCache(selectorCacheSize, wanted)
	}
	return selectorCaches[wanted]
}

// ready is a problem that has been taken apart.
type ready struct {
	features structured.Features
	state    structured.AllocatedState
	classes  classLister
	slices   []*resourceapi.ResourceSlice
}

func (c cluster) prepare() (ready, error) {
	features, err := featuresNamed(c.Features)
	if err != nil {
		return ready{}, err
	}
	state, err := c.allocated()
	if err != nil {
		return ready{}, err
	}
	// "" is the scheduler's own choice.
	switch c.Implementation {
	case "":
		structured.EnableAllocators()
	case "stable", "incubating", "experimental":
		structured.EnableAllocators(c.Implementation)
	default:
		return ready{}, fmt.Errorf("impl %q is unknown", c.Implementation)
	}
	return ready{features, state, classLister(c.Classes), c.Slices}, nil
}

func (r ready) allocator(ctx context.Context, cache *cel.Cache) (structured.Allocator, error) {
	return structured.NewAllocator(ctx, r.features, r.state, r.classes, r.slices, cache)
}

// steps asks by reflection: the type of the statistics is internal to the module.
func steps(allocator structured.Allocator) *int64 {
	method := reflect.ValueOf(allocator).MethodByName("GetStats")
	if !method.IsValid() {
		return nil
	}
	count := method.Call(nil)[0].FieldByName("NumAllocateOneInvocations").Int()
	return &count
}

func answerAllocation(ctx context.Context, line []byte, details bool) (any, error) {
	var problem allocationProblem
	if err := decode(line, &problem); err != nil {
		return nil, err
	}
	prepared, err := problem.prepare()
	if err != nil {
		return nil, err
	}
	answer := allocationAnswer{Name: problem.Name}
	allocator, err := prepared.allocator(ctx, selectorCache(prepared.features, false))
	if err == nil {
		answer.Results, err = allocator.Allocate(ctx, problem.Node, problem.Claims)
		if details {
			answer.Steps = steps(allocator)
		}
	}
	if err != nil {
		answer.Error = *errorText(ctx, err)
		if details {
			onlyThisNode := errors.Is(err, structured.ErrFailedAllocationOnNode)
			answer.OnlyThisNode = &onlyThisNode
		}
	}
	return answer, nil
}

type allocationBench struct {
	allocationProblem
	// Nodes are asked one after the other with the same allocator, as the scheduler does.
	Nodes  []*corev1.Node `json:"nodes"`
	Repeat int            `json:"repeat"`
	// FreshCache starts each repeat without compiled selectors.
	FreshCache bool `json:"freshCache"`
}

// allocationTimes has one entry for each repeat: making the allocator, then asking it for each node.
type allocationTimes struct {
	Name       string  `json:"name"`
	Nodes      int     `json:"nodes"`
	Satisfied  int     `json:"satisfied"`
	Error      string  `json:"error"`
	PrepareNs  []int64 `json:"prepareNs"`
	AllocateNs []int64 `json:"allocateNs"`
}

// benchAllocation limits a repeat, not the line: the context has to last for one.
func benchAllocation(_ context.Context, line []byte, _ bool) (any, error) {
	var problem allocationBench
	if err := decode(line, &problem); err != nil {
		return nil, err
	}
	prepared, err := problem.prepare()
	if err != nil {
		return nil, err
	}
	nodes := problem.Nodes
	if len(nodes) == 0 {
		nodes = []*corev1.Node{problem.Node}
	}
	times := allocationTimes{Name: problem.Name, Nodes: len(nodes)}
	for range max(1, problem.Repeat) {
		times.Satisfied = 0
		err := times.measure(prepared, nodes, problem.Claims, problem.FreshCache)
		if err != nil {
			times.Error = err.Error()
		}
	}
	return times, nil
}

func (t *allocationTimes) measure(
	prepared ready, nodes []*corev1.Node, claims []*resourceapi.ResourceClaim, freshCache bool,
) error {
	ctx := context.Background()
	cache := selectorCache(prepared.features, freshCache)
	started := time.Now()
	allocator, err := prepared.allocator(ctx, cache)
	t.PrepareNs = append(t.PrepareNs, time.Since(started).Nanoseconds())
	if err != nil {
		return err
	}
	started = time.Now()
	var failed error
	for _, node := range nodes {
		results, err := allocator.Allocate(ctx, node, claims)
		if err != nil {
			failed = err
		} else if results != nil {
			t.Satisfied++
		}
	}
	t.AllocateNs = append(t.AllocateNs, time.Since(started).Nanoseconds())
	return failed
}
