package install

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// node is what the pods are bound to.
	node = "local"
	// lookPeriod is how often the kubelet looks at its pods.
	lookPeriod = probePeriod
	// restartPause is how long there is at least from one start of a process to the next.
	restartPause = time.Second
	// maxPods is how many it runs at once: two, and those that a rollout puts in their place.
	maxPods = 8
)

// Kubelet runs the pods of the installed Deployment as processes, each on a loopback address of its own, and gives the Service's
// connections to those that are ready. So a rollout, a scale, a deleted pod, an uninstall and an installation after it have the
// effects that they have in a cluster. It needs a control plane with a controller manager that does not judge nodes: see
// ControllerManagerFlags.
type Kubelet struct {
	s        *Sallyport
	watched  client.Reader   // of the namespace
	selector labels.Selector // of the pods, which no upgrade can change
	ips      []string
	end      context.CancelFunc
	looking  sync.WaitGroup
	ending   sync.WaitGroup // of processes

	mu       sync.Mutex
	options  Options
	pods     map[types.UID]*pod
	balancer *Balancer // nil while there is no Service
	failed   error     // what is wrong, as of the last look
}

// pod is one of them, as a process.
type pod struct {
	name     string
	ip       string
	manager  *Manager
	ready    func(context.Context) bool
	started  time.Time
	restarts int32
	shown    bool // as ready
	stale    bool // the status is still to be written
	ending   bool
}

// ControllerManagerFlags are what a controller manager needs beside a Kubelet, which has a Node but does not look after it.
func ControllerManagerFlags() map[string]string {
	return map[string]string{"controllers": "*,-node-lifecycle-controller"}
}

// NewKubelet starts one for an installed release.
func (s *Sallyport) NewKubelet(ctx context.Context, o Options) (*Kubelet, error) {
	local := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	local.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	_, err := s.clientset.CoreV1().Nodes().Create(ctx, local, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("making a Node: %w", err)
	}
	k := &Kubelet{s: s, options: o, pods: map[types.UID]*pod{}}
	if k.selector, err = labels.Parse(s.deployed.selector); err != nil {
		return nil, err
	}
	if k.ips, err = podIPs(s.plane.ServiceRange); err != nil {
		return nil, err
	}
	ctx, k.end = context.WithCancel(context.WithoutCancel(ctx)) // it goes on until Close
	if k.watched, err = Watched(ctx, s.plane.Config, Namespace); err != nil {
		k.end()
		return nil, err
	}
	k.looking.Go(func() { k.run(ctx) })
	return k, nil
}

// podPorts are the chart's.
var podPorts = Ports{Webhook: 9443, Metrics: 8080, Health: 8081}

// podIPs are addresses that no Service and no other control plane on this machine has: those of the Services, moved by 127.16.
func podIPs(services string) (all []string, err error) {
	ip, _, err := net.ParseCIDR(services)
	if err != nil {
		return nil, err
	}
	ip = slices.Clone(ip.To4())
	ip[1] += 16
	for i := range maxPods {
		ip[3] = byte(i + 1)
		all = append(all, ip.String())
	}
	return all, nil
}

// Options has pods that are started from now on run with other options.
func (k *Kubelet) Options(o Options) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.options = o
}

// Manager gives the process of a pod.
func (k *Kubelet) Manager(name string) (*Manager, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.pods {
		if p.name == name {
			return p.manager, nil
		}
	}
	return nil, fmt.Errorf("pod %s does not run", name)
}

// Describe tells of each pod what it says of being ready, for people.
func (k *Kubelet) Describe(ctx context.Context) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []string
	for _, p := range k.pods {
		said, err := p.manager.get(ctx, podPorts.Health, "/readyz?verbose")
		all = append(all, fmt.Sprintf("%s at %s, ready %t, ending %t: %s %v", p.name, p.ip, p.shown, p.ending, said, err))
	}
	slices.Sort(all)
	return fmt.Sprintf("%s\n%v", strings.Join(all, "\n"), k.failed)
}

// Replicas are the names of the pods that run and were not asked to end.
func (k *Kubelet) Replicas() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var names []string
	for _, p := range k.pods {
		if !p.ending {
			names = append(names, p.name)
		}
	}
	slices.Sort(names)
	return names
}

// Close ends all processes at once, and tells what is wrong.
func (k *Kubelet) Close() error {
	k.end()
	k.looking.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.failed
	for _, p := range k.pods {
		err = errors.Join(err, p.manager.Kill())
	}
	k.ending.Wait()
	return errors.Join(err, k.listen(""))
}

func (k *Kubelet) run(ctx context.Context) {
	looks := time.NewTicker(lookPeriod)
	defer looks.Stop()
	for {
		if err := k.look(ctx); ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			k.mu.Lock()
			k.failed = err
			k.mu.Unlock()
		}
		select {
		case <-looks.C:
		case <-ctx.Done():
			return
		}
	}
}

// look puts the processes in line with the pods that there are, and the status of the pods in line with the processes.
func (k *Kubelet) look(ctx context.Context) error {
	address, err := k.serviceAddress(ctx)
	if err != nil {
		return err
	}
	list := &corev1.PodList{}
	if err := k.watched.List(ctx, list, client.InNamespace(Namespace), client.MatchingLabelsSelector{Selector: k.selector}); err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	err = k.listen(address)
	there := map[types.UID]bool{}
	for i := range list.Items {
		there[list.Items[i].UID] = true
	}
	for uid, p := range k.pods {
		if !there[uid] {
			k.forget(uid, p)
		}
	}
	for i := range list.Items {
		err = errors.Join(err, k.tend(ctx, &list.Items[i]))
	}
	return err
}

// serviceAddress is where the API server calls the webhooks, empty while there is no Service.
func (k *Kubelet) serviceAddress(ctx context.Context) (string, error) {
	service := &corev1.Service{}
	err := k.watched.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: Service}, service)
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("reading the installed Service: %w", err)
	case len(service.Spec.Ports) != 1:
		return "", fmt.Errorf("the installed Service has %d ports", len(service.Spec.Ports))
	}
	return net.JoinHostPort(service.Spec.ClusterIP, strconv.Itoa(int(service.Spec.Ports[0].Port))), nil
}

// listen takes the Service's connections at its address, which is another after a new installation, and none without one.
func (k *Kubelet) listen(address string) (err error) {
	if k.balancer != nil {
		if address == k.balancer.Address() {
			return nil
		}
		err = k.balancer.Close()
		k.balancer = nil
	}
	if address == "" || err != nil {
		return err
	}
	var backends []Backend
	for _, ip := range k.ips {
		at := &Manager{address: ip, ports: podPorts}
		backends = append(backends, at.Backend())
	}
	k.balancer, err = NewBalancer(address, backends...)
	return err
}

// forget ends what runs for a pod that is gone.
func (k *Kubelet) forget(uid types.UID, p *pod) {
	delete(k.pods, uid)
	k.ending.Go(func() { _ = p.manager.Kill() })
}

// tend does for one pod what there is to be done.
func (k *Kubelet) tend(ctx context.Context, object *corev1.Pod) error {
	p := k.pods[object.UID]
	switch {
	case p == nil && object.DeletionTimestamp != nil:
		return k.remove(ctx, object)
	case p == nil:
		return k.begin(ctx, object)
	case object.DeletionTimestamp != nil && !p.ending:
		p.ending = true
		k.ending.Go(func() { _ = p.manager.Stop() })
	}
	select {
	case <-p.manager.Ended():
		if p.ending {
			delete(k.pods, object.UID)
			return k.remove(ctx, object)
		}
		return k.restart(ctx, object, p)
	default:
	}
	ready := k.probe(ctx, p)
	if ready == p.shown && !p.stale {
		return nil
	}
	p.shown, p.stale = ready, true
	return k.show(ctx, object, p)
}

// probe reports whether a pod is ready. A probe costs the manager a TLS handshake: as long as a pod stays ready, the probes of the balancer
// are enough.
func (k *Kubelet) probe(ctx context.Context, p *pod) bool {
	if p.shown && k.balancer != nil && k.balancer.Ready(p.manager.Webhooks()) {
		return true
	}
	probing, cancel := context.WithTimeout(ctx, probePatience)
	defer cancel()
	return p.ready(probing)
}

// remove tells the API server that nothing runs of a pod any more.
func (k *Kubelet) remove(ctx context.Context, object *corev1.Pod) error {
	at := int64(0)
	return k.s.clientset.CoreV1().Pods(object.Namespace).Delete(ctx, object.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &at, Preconditions: &metav1.Preconditions{UID: &object.UID},
	})
}

// begin runs a pod that is new.
func (k *Kubelet) begin(ctx context.Context, object *corev1.Pod) error {
	used := map[string]bool{}
	for _, p := range k.pods {
		used[p.ip] = true
	}
	free := slices.IndexFunc(k.ips, func(ip string) bool { return !used[ip] })
	if free < 0 {
		return nil // later
	}
	if object.Spec.NodeName == "" {
		err := k.s.clientset.CoreV1().Pods(object.Namespace).Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: object.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: node},
		}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("binding pod %s: %w", object.Name, err)
		}
		return nil // with the next look, which has it bound
	}
	p := &pod{name: object.Name, ip: k.ips[free], stale: true}
	if err := k.start(ctx, object, p); err != nil {
		return err
	}
	k.pods[object.UID] = p
	return nil // its status is shown with the next look
}

// start starts the process of a pod, with a token of its ServiceAccount as it is now.
func (k *Kubelet) start(ctx context.Context, object *corev1.Pod, p *pod) error {
	d, err := deployedBy(&object.Spec)
	if err != nil {
		return err
	}
	args, environment, err := d.as(object.Namespace, object.Name, string(object.UID))
	if err != nil {
		return err
	}
	kubeconfig, err := k.s.plane.ServiceAccountKubeconfig(ctx, object.Namespace, d.serviceAccount)
	if err != nil {
		return err
	}
	m := &Manager{Name: object.Name, address: p.ip, ports: podPorts}
	if err := m.run(k.options, kubeconfig, args, environment); err != nil {
		return err
	}
	p.manager, p.ready, p.started = m, ReadyAt(m.url(podPorts.Health, d.readiness)), time.Now()
	return nil
}

// restart starts a process that has ended by itself, as the restart policy has it, but not at once again and again.
func (k *Kubelet) restart(ctx context.Context, object *corev1.Pod, p *pod) error {
	if time.Since(p.started) >= restartPause {
		if err := k.start(ctx, object, p); err != nil {
			return err
		}
		p.restarts++
		p.stale = true
	}
	if !p.shown && !p.stale {
		return nil
	}
	p.shown = false
	return k.show(ctx, object, p)
}

// show writes the status of a pod.
func (k *Kubelet) show(ctx context.Context, object *corev1.Pod, p *pod) error {
	now, is := metav1.Now(), corev1.ConditionFalse
	if p.shown {
		is = corev1.ConditionTrue
	}
	object.Status.Phase = corev1.PodRunning
	object.Status.PodIP, object.Status.PodIPs = p.ip, []corev1.PodIP{{IP: p.ip}}
	if object.Status.StartTime == nil {
		object.Status.StartTime = &now
	}
	object.Status.Conditions = slices.DeleteFunc(object.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady || c.Type == corev1.ContainersReady
	})
	for _, t := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady} {
		object.Status.Conditions = append(object.Status.Conditions, corev1.PodCondition{Type: t, Status: is, LastTransitionTime: now})
	}
	image := object.Spec.Containers[0].Image
	object.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: containerName, Ready: p.shown, Started: &p.shown, RestartCount: p.restarts, Image: image, ImageID: image,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: *object.Status.StartTime}},
	}}
	_, err := k.s.clientset.CoreV1().Pods(object.Namespace).UpdateStatus(ctx, object, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("writing the status of pod %s: %w", object.Name, err)
	}
	p.stale = false
	return nil
}

// probePath is where a container says that it is ready.
func probePath(c *corev1.Container) (string, error) {
	if p := c.ReadinessProbe; p != nil && p.HTTPGet != nil {
		return "/" + strings.TrimPrefix(p.HTTPGet.Path, "/"), nil
	}
	return "", fmt.Errorf("container %s has no readiness probe over HTTP", c.Name)
}
