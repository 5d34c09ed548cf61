package virt

import (
	"context"
	"crypto/tls"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/reconcilers/runtime"
)

// Nodes are the nodes of the agent.
var Nodes = []string{"node-1", "node-2"}

// Agent plays the scheduler, the kubelet and virt-handler of all nodes, and their storage.
type Agent struct {
	client.Client
	handler client.Client // as virt-handler: nobody else may change the status of an instance
	port    int           // of its API, which resumes instances

	mu       sync.Mutex
	ignoring map[types.NamespacedName]bool
	held     map[types.NamespacedName]runtime.TaskKind
	boots    map[types.NamespacedName]int
	stalled  map[types.NamespacedName]bool
}

// newAgent starts an agent, which runs until Stop.
func (c *Cluster) newAgent(ctx context.Context) (a *Agent, err error) {
	a = &Agent{
		Client: c.Client, ignoring: map[types.NamespacedName]bool{}, held: map[types.NamespacedName]runtime.TaskKind{},
		boots: map[types.NamespacedName]int{}, stalled: map[types.NamespacedName]bool{},
	}
	config := rest.CopyConfig(c.Plane.Config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + Namespace + ":kubevirt-handler",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + Namespace, "system:authenticated"},
	}
	if a.handler, err = client.New(config, client.Options{Scheme: c.Scheme}); err != nil {
		return nil, err
	}
	if err := c.serveAgent(ctx, a); err != nil {
		return nil, err
	}
	if err := a.addStorageClass(ctx); err != nil {
		return nil, err
	}
	for _, name := range Nodes {
		if err := a.addNode(ctx, name); err != nil {
			return nil, err
		}
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		wait.UntilWithContext(ctx, a.step, 50*time.Millisecond)
	}()
	c.undo = append(c.undo, func() {
		stop()
		<-done
	})
	return a, nil
}

// serveAgent serves the API of virt-handler.
func (c *Cluster) serveAgent(ctx context.Context, a *Agent) error {
	crt, key, err := c.pair(ctx, "kubevirt-virt-handler-server-certs")
	if err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(crt, key)
	if err != nil {
		return err
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert})
	if err != nil {
		return err
	}
	a.port = listener.Addr().(*net.TCPAddr).Port
	routes := http.NewServeMux()
	routes.HandleFunc("PUT /v1/namespaces/{namespace}/virtualmachineinstances/{name}/unpause", func(w http.ResponseWriter, r *http.Request) {
		key := types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
		if err := a.SetPaused(r.Context(), key, false); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	})
	server := &http.Server{Handler: routes, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	c.undo = append(c.undo, func() { _ = server.Close() })
	return nil
}

// addNode creates a node as virt-handler labels it, and virt-handler's Pod there.
func (a *Agent) addNode(ctx context.Context, name string) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		corev1.LabelHostname: name, corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux", virtv1.NodeSchedulable: "true",
		"machine-type.node.kubevirt.io/q35": "true", "host-model-cpu.node.kubevirt.io/Skylake": "true",
		"cpu-model.node.kubevirt.io/Skylake": "true", "cpu-model-migration.node.kubevirt.io/Skylake": "true",
	}, Annotations: map[string]string{"kubevirt.io/heartbeat": `"` + time.Now().Add(time.Hour).UTC().Format(time.RFC3339) + `"`}}}
	if err := a.Create(ctx, node); err != nil {
		return err
	}
	ready := node.DeepCopy()
	ready.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	ready.Status.Capacity = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("100"), corev1.ResourceMemory: resource.MustParse("1Ti"),
		"devices.kubevirt.io/kvm": resource.MustParse("1k"), "devices.kubevirt.io/tun": resource.MustParse("1k"),
	}
	ready.Status.Allocatable = ready.Status.Capacity
	if err := a.Status().Patch(ctx, ready, client.MergeFrom(node)); err != nil {
		return err
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "virt-handler-" + name, Labels: map[string]string{virtv1.AppLabel: "virt-handler"}},
		Spec:       corev1.PodSpec{NodeName: name, Containers: []corev1.Container{{Name: "virt-handler", Image: "virt-handler"}}},
	}
	err := await(ctx, "the ServiceAccount of Pods exists", func(ctx context.Context) bool { return a.Create(ctx, pod) == nil })
	if err != nil {
		return err
	}
	runs := pod.DeepCopy()
	runs.Status.Phase, runs.Status.PodIP = corev1.PodRunning, "127.0.0.1"
	runs.Status.PodIPs = []corev1.PodIP{{IP: runs.Status.PodIP}}
	runs.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	return a.Status().Patch(ctx, runs, client.MergeFrom(pod))
}

// step lets all Pods and instances go on. What fails is tried again in the next step.
func (a *Agent) step(ctx context.Context) {
	var pods corev1.PodList
	var instances virtv1.VirtualMachineInstanceList
	var moves virtv1.VirtualMachineInstanceMigrationList
	// In this order: the migration of a Pod that is seen is known, and where the guest is after a migration that has ended.
	if a.List(ctx, &pods, client.MatchingLabels{virtv1.AppLabel: "virt-launcher"}) != nil || a.List(ctx, &moves) != nil || a.List(ctx, &instances) != nil {
		return
	}
	moving := map[string]bool{}
	for i := range moves.Items {
		moving[string(moves.Items[i].UID)] = !moves.Items[i].IsFinal()
	}
	of := map[types.UID]*virtv1.VirtualMachineInstance{}
	for i := range instances.Items {
		of[instances.Items[i].UID] = &instances.Items[i]
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if vmi := of[types.UID(pod.Labels[virtv1.CreatedByLabel])]; vmi != nil && a.stalls(client.ObjectKeyFromObject(vmi)) {
			continue
		}
		a.stepPod(ctx, pod, of[types.UID(pod.Labels[virtv1.CreatedByLabel])], moving[pod.Labels[virtv1.MigrationJobLabel]])
	}
	a.stepAttachments(ctx, pods.Items)
	a.stepClaims(ctx)
	for i := range instances.Items {
		vmi := &instances.Items[i]
		before := vmi.Status.Phase
		if a.stalls(client.ObjectKeyFromObject(vmi)) || !a.stepInstance(vmi) || a.handler.Update(ctx, vmi) != nil {
			continue
		}
		if before != vmi.Status.Phase && vmi.Status.Phase == virtv1.Running {
			a.mu.Lock()
			a.boots[client.ObjectKeyFromObject(vmi)]++
			a.mu.Unlock()
		}
	}
}

// stepPod lets a Pod go on. moves reports whether the migration for which it was created is in progress.
func (a *Agent) stepPod(ctx context.Context, pod *corev1.Pod, vmi *virtv1.VirtualMachineInstance, moves bool) {
	_, isTarget := pod.Labels[virtv1.MigrationJobLabel]
	over := vmi == nil || vmi.IsFinal()
	if !over && vmi.Status.MigrationState != nil { // virt-launcher ends where the guest has left
		move := vmi.Status.MigrationState
		over = move.Completed && !move.Failed && move.SourcePod == pod.Name
	}
	// It also ends where no guest comes. virt-controller leaves a target there if the migration is cancelled before it has seen the Pod that it
	// has just created; a real one waits for some minutes.
	left := !over && isTarget && !moves && pod.Spec.NodeName != vmi.Status.NodeName
	switch {
	case over && pod.Status.Phase == corev1.PodRunning,
		left && pod.DeletionTimestamp.IsZero() && (pod.Status.Phase == corev1.PodRunning || pod.Status.Phase == corev1.PodPending):
		pod.Status.Phase, pod.Status.ContainerStatuses = corev1.PodSucceeded, nil
		_ = a.Status().Update(ctx, pod)
	case !over && pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds <= 1:
		a.kill(ctx, pod, vmi)
	case !pod.DeletionTimestamp.IsZero():
		migrates := vmi != nil && vmi.Status.MigrationState != nil && !vmi.Status.MigrationState.Completed
		if over || pod.Spec.NodeName != vmi.Status.NodeName && !migrates || pod.Spec.NodeName == "" || isTarget && !migrates && vmi.Status.NodeName != pod.Spec.NodeName {
			_ = a.Delete(ctx, pod, client.GracePeriodSeconds(0))
		}
	case pod.Spec.NodeName == "":
		a.schedule(ctx, pod, isTarget, vmi)
	case pod.Status.Phase == corev1.PodPending && !over:
		_ = a.start(ctx, pod)
	}
}

// start has the containers of a Pod run.
func (a *Agent) start(ctx context.Context, pod *corev1.Pod) error {
	now := metav1.Now()
	pod.Status.Phase, pod.Status.PodIP = corev1.PodRunning, "10.0.0.7"
	pod.Status.PodIPs = []corev1.PodIP{{IP: pod.Status.PodIP}}
	for _, c := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: "registry.test/image@sha256:" + strings.Repeat("0", 64), // a migration needs the digest
			Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
	return a.Status().Update(ctx, pod)
}

// kill ends the guest in a Pod that the kubelet ends at once, unless that is held.
func (a *Agent) kill(ctx context.Context, pod *corev1.Pod, vmi *virtv1.VirtualMachineInstance) {
	a.mu.Lock()
	held := a.held[client.ObjectKeyFromObject(vmi)] == runtime.TaskPowerOff
	a.mu.Unlock()
	if held {
		return
	}
	vmi.Status.Phase = virtv1.Failed
	if pod.Spec.NodeName != vmi.Status.NodeName || a.handler.Update(ctx, vmi) == nil {
		_ = a.Delete(ctx, pod, client.GracePeriodSeconds(0))
	}
}

// schedule binds a Pod to a node that its node selector allows. A target of a migration gets another node than the instance has.
func (a *Agent) schedule(ctx context.Context, pod *corev1.Pod, isTarget bool, vmi *virtv1.VirtualMachineInstance) {
	for _, name := range Nodes {
		node := &corev1.Node{}
		if a.Get(ctx, client.ObjectKey{Name: name}, node) != nil || node.Status.Conditions[0].Status != corev1.ConditionTrue || isTarget && vmi != nil && vmi.Status.NodeName == name {
			continue
		}
		labels := maps.Clone(node.Labels)
		maps.Copy(labels, pod.Spec.NodeSelector)
		if !maps.Equal(labels, node.Labels) {
			continue
		}
		_ = a.SubResource("binding").Create(ctx, pod, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: name}})
		return
	}
}

// stepInstance lets an instance go on, and reports whether it has changed.
func (a *Agent) stepInstance(vmi *virtv1.VirtualMachineInstance) bool {
	key := client.ObjectKeyFromObject(vmi)
	a.mu.Lock()
	ignores, held := a.ignoring[key], a.held[key]
	a.mu.Unlock()
	grace := vmi.Spec.TerminationGracePeriodSeconds
	forced := grace != nil && *grace == 0
	state := &vmi.Status
	switch {
	case state.NodeName == "" || vmi.IsFinal():
		return false
	case !vmi.DeletionTimestamp.IsZero():
		if held == runtime.TaskPowerOff || !forced && ignores {
			return false
		}
		state.Phase = virtv1.Succeeded
		return true
	}
	plugged, all := plugVolumes(vmi, held)
	switch {
	case state.Phase == virtv1.Scheduled && state.SelinuxContext == "": // virt-controller plugs in no volumes before
		state.SelinuxContext = "none"
		return true
	case state.Phase == virtv1.Scheduled && held != runtime.TaskPowerOn && !waitsForVolumes(vmi, all):
		run(vmi)
		return true
	case state.Phase == virtv1.Running && migrate(vmi, held == runtime.TaskRelocate):
		return true
	}
	return plugged
}

// Stall has nothing be done for the instances of that name, as by a node that is dead or does not answer, until it is called with false.
func (a *Agent) Stall(key types.NamespacedName, stalls bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stalled[key] = stalls
}

func (a *Agent) stalls(key types.NamespacedName) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stalled[key]
}

// run has the guest boot.
func run(vmi *virtv1.VirtualMachineInstance) {
	state := &vmi.Status
	state.Phase = virtv1.Running
	state.MigrationMethod, state.MigrationTransport = virtv1.LiveMigration, virtv1.MigrationTransportUnix
	state.Machine = &virtv1.Machine{Type: "q35"}
	for _, condition := range []virtv1.VirtualMachineInstanceConditionType{
		virtv1.VirtualMachineInstanceIsMigratable, virtv1.VirtualMachineInstanceIsStorageLiveMigratable, virtv1.VirtualMachineInstanceAgentConnected,
	} {
		SetCondition(vmi, condition, true)
	}
}

// migrate lets a migration go on, and reports whether it has changed.
func migrate(vmi *virtv1.VirtualMachineInstance, held bool) bool {
	move, now := vmi.Status.MigrationState, metav1.Now()
	switch {
	case move == nil || move.Completed || move.TargetNode == "":
		return false
	case move.AbortRequested && move.StartTimestamp != nil:
		move.AbortStatus, move.Failed, move.Completed, move.EndTimestamp = virtv1.MigrationAbortSucceeded, true, true, &now
		move.FailureReason = "the migration was aborted"
	case move.TargetNodeAddress == "":
		move.TargetNodeAddress, move.TargetNodeDomainDetected = "127.0.0.1", true
		move.TargetDirectMigrationNodePorts = map[string]int{"1": 0}
	case move.StartTimestamp == nil:
		move.StartTimestamp = &now
	case held:
		return false
	default:
		move.EndTimestamp, move.Completed, move.TargetNodeDomainReadyTimestamp = &now, true, &now
		vmi.Status.NodeName, vmi.Labels[virtv1.NodeNameLabel] = move.TargetNode, move.TargetNode
	}
	return true
}

// SetCondition adds a condition that is true, or removes it.
func SetCondition(vmi *virtv1.VirtualMachineInstance, condition virtv1.VirtualMachineInstanceConditionType, is bool) {
	vmi.Status.Conditions = slices.DeleteFunc(vmi.Status.Conditions, func(c virtv1.VirtualMachineInstanceCondition) bool { return c.Type == condition })
	if is {
		vmi.Status.Conditions = append(vmi.Status.Conditions, virtv1.VirtualMachineInstanceCondition{
			Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(),
		})
	}
}

// SetNodeReady has the cluster hear of a node, or not. As Kubernetes does, it sets the Pods of the node not ready then.
func (a *Agent) SetNodeReady(ctx context.Context, name string, is bool) error {
	status := corev1.ConditionUnknown
	if is {
		status = corev1.ConditionTrue
	}
	node, list := &corev1.Node{}, &corev1.PodList{}
	if err := a.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return err
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
	if err := a.Status().Update(ctx, node); err != nil {
		return err
	}
	if err := a.List(ctx, list, client.MatchingLabels{virtv1.AppLabel: "virt-launcher"}); err != nil {
		return err
	}
	for i := range list.Items {
		pod := &list.Items[i]
		if pod.Spec.NodeName != name || pod.Status.Phase != corev1.PodRunning {
			continue
		}
		before := pod.DeepCopy()
		pod.Status.Conditions = slices.DeleteFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionStatus(map[bool]string{true: "True", false: "False"}[is])})
		if err := a.Status().Patch(ctx, pod, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// SetPaused pauses or resumes an instance.
func (a *Agent) SetPaused(ctx context.Context, key types.NamespacedName, paused bool) error {
	return a.Edit(ctx, key, func(vmi *virtv1.VirtualMachineInstance) {
		SetCondition(vmi, virtv1.VirtualMachineInstancePaused, paused)
	})
}

// Edit changes an instance as virt-handler does.
func (a *Agent) Edit(ctx context.Context, key types.NamespacedName, change func(*virtv1.VirtualMachineInstance)) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error { // virt-controller writes the instance, too
		vmi := &virtv1.VirtualMachineInstance{}
		if err := a.Get(ctx, key, vmi); err != nil {
			return err
		}
		change(vmi)
		return a.handler.Update(ctx, vmi)
	})
}

// Ignore has the guest of an instance ignore requests to shut down.
func (a *Agent) Ignore(key types.NamespacedName, ignores bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ignoring[key] = ignores
}

// Hold keeps a task of an instance from ending until release is called.
func (a *Agent) Hold(key types.NamespacedName, kind runtime.TaskKind) (release func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held[key] = kind
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.held, key)
	}
}

// Boots returns how often instances of a machine have booted.
func (a *Agent) Boots(key types.NamespacedName) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.boots[key]
}
