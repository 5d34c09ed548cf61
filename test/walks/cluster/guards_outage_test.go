package cluster

import (
	"flag"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/env/install"
)

var (
	traffic = flag.Duration("traffic", 0, "how long ordinary traffic is recorded while no replica answers; 0 is two rounds of it")
	every   = flag.Duration("every", 0, "how far apart rounds of it begin at least; 0 is one after the other")
)

// Who makes requests while nobody answers: one does what goes on in any cluster, the other what the guards are for.
const (
	ordinary   = "ordinary"
	deliberate = "deliberate"
)

// outage is a cluster whose guards nobody answers for.
type outage struct {
	*trial
	ordinary, deliberate client.Client
}

// unanswered has the traffic of a cluster go on while no replica runs, and counts what is refused for that.
func (s *guardSite) unanswered() {
	o := &outage{trial: &trial{guardSite: s, guarded: true, space: s.namespace()}}
	o.ordinary, o.deliberate = s.as(ordinary), s.as(deliberate)
	o.make(strings.NewReplacer("name: web", "name: limited", "app: web", "app: limited", "paused: true, ", "").Replace(o.workload("Deployment", atLeastTwo, "2")))
	o.make(o.object("ConfigMap", ""))
	s.Must(s.Sallyport.Stop())
	began, rounds := time.Now(), 0
	for ; rounds < 2 || time.Since(began) < *traffic; rounds++ {
		next := time.After(*every)
		o.ordinaryRound(rounds)
		o.deliberateRound()
		<-next
	}
	r := s.recorded(began)
	s.Logf("%d rounds in %.0f s: %s", rounds, time.Since(began).Seconds(), r)
	refused := 0
	for what, n := range r.unanswered {
		refused += n
		if !strings.HasPrefix(what, deliberate+" ") {
			s.Errorf("%d times %s was refused because nobody answers", n, what)
		}
	}
	if want := rounds * deliberateRequests; refused != want || r.writes < 50*rounds {
		s.Errorf("of %d writes %d were refused because nobody answers, and %d were made for that", r.writes, refused, want)
	}
	s.Must(s.Sallyport.Resume(s.Context(), s.Options))
	o.kubelet(o.space)
	o.release()
	s.cleared()
}

// as is a client of somebody who may do everything.
func (s *guardSite) as(user string) client.Client {
	s.Helper()
	config := rest.CopyConfig(s.Plane.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
	c, err := install.Client(config)
	s.Must(err)
	return c
}

// read is an object of a manifest, in the namespace of the outage.
func (o *outage) read(manifest string) *unstructured.Unstructured {
	o.Helper()
	object := &unstructured.Unstructured{}
	o.Must(yaml.Unmarshal([]byte(manifest), &object.Object))
	namespaced, err := o.Client.IsObjectNamespaced(object)
	o.Must(err)
	if namespaced && object.GetNamespace() == "" {
		object.SetNamespace(o.space)
	}
	return object
}

// crud is a life of what a manifest says: made, changed in each of its parts, and deleted.
func (o *outage) crud(manifests ...string) {
	o.Helper()
	for _, m := range manifests {
		object := o.read(m)
		o.Must(o.ordinary.Create(o.Context(), object))
		o.merge(object, `{"metadata":{"labels":{"a":"b"},"annotations":{"c":"d"},"finalizers":["example.com/hold"]}}`)
		o.Must(o.ordinary.Delete(o.Context(), object))
		o.merge(object, `{"metadata":{"finalizers":null}}`)
	}
}

func (o *outage) merge(object client.Object, text string) {
	o.Helper()
	o.Must(o.ordinary.Patch(o.Context(), object, client.RawPatch(types.MergePatchType, []byte(text))))
}

// mergeStatus does so with the subresource status.
func (o *outage) mergeStatus(object client.Object, text string) {
	o.Helper()
	o.Must(o.ordinary.Status().Patch(o.Context(), object, client.RawPatch(types.MergePatchType, []byte(text))))
}

// ordinaryRound is what goes on in a cluster: all of it succeeds.
func (o *outage) ordinaryRound(round int) {
	o.Helper()
	if round%20 == 0 {
		o.crudNamespace()
	}
	o.crud(
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}", "{apiVersion: v1, kind: Secret, metadata: {name: a}}",
		"{apiVersion: v1, kind: ServiceAccount, metadata: {name: a}}",
		"{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {selector: {app: web}, ports: [{port: 80}]}}",
		"{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}",
		"{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: a}}",
		"{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: a}, addressType: IPv4, endpoints: []}",
		"{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: a}, spec: {minAvailable: 0, selector: {matchLabels: {a: b}}}}",
		"{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: a}, spec: {podSelector: {}}}",
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: a}, rules: []}",
		"{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: a}, spec: {selector: {matchLabels: {app: d}}, template: {metadata: {labels: {app: d}}, spec: {containers: [{name: c, image: x}]}}}}",
		"{apiVersion: batch/v1, kind: CronJob, metadata: {name: a}, spec: {schedule: '0 0 * * *', jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: x}]}}}}}}",
		fmt.Sprintf("{apiVersion: v1, kind: Event, metadata: {name: a}, involvedObject: {namespace: %s}, reason: A, message: a}", o.space),
		"{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.example.com}, spec: {group: example.com, scope: Namespaced, "+
			"names: {plural: widgets, singular: widget, kind: Widget}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}",
	)
	o.node()
	o.rollout()
	o.guardedLife()
}

// crudNamespace makes a namespace, which its controllers fill, and deletes it.
func (o *outage) crudNamespace() {
	o.Helper()
	n := &corev1.Namespace{}
	n.GenerateName, n.Labels = "guards-", map[string]string{"guards": "test"}
	o.Must(o.ordinary.Create(o.Context(), n))
	o.merge(n, `{"metadata":{"labels":{"a":"b"}}}`)
	o.Until("it has its ServiceAccount", func() (string, bool) {
		err := o.ordinary.Get(o.Context(), client.ObjectKey{Namespace: n.Name, Name: "default"}, &corev1.ServiceAccount{})
		return fmt.Sprint(err), err == nil
	})
	o.Must(o.ordinary.Delete(o.Context(), n))
}

// node comes, says that it is alive, runs a Pod, is drained and goes.
func (o *outage) node() {
	o.Helper()
	node := o.read("{apiVersion: v1, kind: Node, metadata: {name: a}}")
	o.Must(o.ordinary.Create(o.Context(), node))
	lease := o.read("{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: a, namespace: kube-node-lease}}")
	o.Must(client.IgnoreAlreadyExists(o.ordinary.Create(o.Context(), lease)))
	for range 3 {
		o.mergeStatus(node, fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"True","lastHeartbeatTime":%q}]}}`, time.Now().UTC().Format(time.RFC3339)))
		o.merge(lease, fmt.Sprintf(`{"spec":{"renewTime":%q}}`, time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")))
	}
	for _, name := range []string{"deleted", "evicted"} {
		o.Must(o.ordinary.Create(o.Context(), o.read("{apiVersion: v1, kind: Pod, metadata: {name: "+name+", labels: {app: bare}}, spec: {containers: [{name: c, image: x}]}}")))
	}
	o.kubelet(o.space)
	pod := &corev1.Pod{}
	o.Must(o.ordinary.Get(o.Context(), client.ObjectKey{Namespace: o.space, Name: "evicted"}, pod))
	o.Must(o.ordinary.SubResource("eviction").Create(o.Context(), pod, &policyv1.Eviction{}))
	o.Must(o.ordinary.Get(o.Context(), client.ObjectKey{Namespace: o.space, Name: "deleted"}, pod))
	o.Must(o.ordinary.Delete(o.Context(), pod))
	o.merge(node, `{"spec":{"unschedulable":true}}`)
	o.kubelet(o.space)
	o.Must(o.ordinary.Delete(o.Context(), node))
}

// kubelet does what there is to be done for the Pods of a namespace: it runs those that are to run, and ends those that are to end.
func (o *outage) kubelet(namespace string) {
	o.Helper()
	list := &corev1.PodList{}
	o.Must(o.ordinary.List(o.Context(), list, client.InNamespace(namespace)))
	for i := range list.Items {
		p := &list.Items[i]
		var err error
		switch {
		case p.DeletionTimestamp != nil:
			err = o.ordinary.Delete(o.Context(), p, client.GracePeriodSeconds(0))
		case p.Spec.NodeName == "":
			err = o.ordinary.SubResource("binding").Create(o.Context(), p, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "a"}})
		case p.Status.Phase == corev1.PodPending:
			phase := corev1.PodRunning
			if p.Spec.RestartPolicy == corev1.RestartPolicyNever {
				phase = corev1.PodSucceeded
			}
			err = o.ordinary.Status().Patch(o.Context(), p, client.RawPatch(types.MergePatchType,
				fmt.Appendf(nil, `{"status":{"phase":%q,"conditions":[{"type":"Ready","status":"True"}]}}`, phase)))
		}
		o.Must(client.IgnoreNotFound(err))
	}
}

// settled waits until a workload is as it is to be, with Pods that run.
func (o *outage) settled(kind schema.GroupVersionKind, name string, is func(status map[string]any) bool) {
	o.Helper()
	o.Until(kind.Kind+" "+name+" is settled", func() (string, bool) {
		o.kubelet(o.space)
		w := &unstructured.Unstructured{}
		w.SetGroupVersionKind(kind)
		o.Must(o.ordinary.Get(o.Context(), client.ObjectKey{Namespace: o.space, Name: name}, w))
		status, _, _ := unstructured.NestedMap(w.Object, "status")
		observed, _, _ := unstructured.NestedInt64(status, "observedGeneration")
		return fmt.Sprint(status), (kind == jobs || observed == w.GetGeneration()) && is(status)
	})
}

func ready(n int64) func(map[string]any) bool {
	return func(status map[string]any) bool {
		return status["readyReplicas"] == n && status["updatedReplicas"] == n && status["replicas"] == n
	}
}

// rollout is the life of workloads: they grow, by hand and by an autoscaler, shrink, are replaced by others, and go with all that they made.
func (o *outage) rollout() {
	o.Helper()
	const template = `selector: {matchLabels: {app: %s}}, template: {metadata: {labels: {app: %[1]s}}, spec: {containers: [{name: c, image: x}]}}}}`
	web := o.read(fmt.Sprintf("{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 2, "+template, "web"))
	db := o.read(fmt.Sprintf("{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db}, spec: {replicas: 1, "+template, "db"))
	job := o.read("{apiVersion: batch/v1, kind: Job, metadata: {name: once}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: x}]}}}}")
	hpa := o.read("{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: web}, spec: {minReplicas: 4, maxReplicas: 5, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}}")
	for _, w := range []client.Object{web, db, job} {
		o.Must(o.ordinary.Create(o.Context(), w))
	}
	o.settled(deployments, "web", ready(2))
	more := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":3}}`))
	o.Must(o.ordinary.SubResource("scale").Patch(o.Context(), web, more))
	o.Must(o.ordinary.SubResource("scale").Patch(o.Context(), db, more))
	o.settled(deployments, "web", ready(3))
	o.Must(o.ordinary.Create(o.Context(), hpa))
	o.settled(deployments, "web", ready(4))
	o.merge(web, `{"spec":{"template":{"metadata":{"annotations":{"rolled":"out"}}}}}`)
	o.settled(deployments, "web", ready(4))
	o.settled(statefulSets, "db", ready(3))
	o.settled(jobs, "once", func(status map[string]any) bool { return status["succeeded"] == int64(1) })
	for scale, fewer := range []string{`{"spec":{"replicas":2}}`, one} {
		patch := client.RawPatch(types.MergePatchType, []byte(fewer))
		if scale == 0 {
			o.Must(o.ordinary.SubResource("scale").Patch(o.Context(), db, patch))
		} else {
			o.Must(o.ordinary.Patch(o.Context(), db, patch))
		}
	}
	o.settled(statefulSets, "db", ready(1))
	for _, w := range []client.Object{hpa, web, db, job} {
		o.Must(o.ordinary.Delete(o.Context(), w, client.PropagationPolicy("Background")))
	}
	o.Until("they are gone with their Pods", func() (string, bool) {
		o.kubelet(o.space)
		text, _ := o.try("", "", "get pods,replicasets --selector app!=limited --namespace "+o.space+" -o name")
		left := 0
		for line := range strings.Lines(text) {
			if strings.Contains(line, "/web") || strings.Contains(line, "/db") || strings.Contains(line, "/once") {
				left++
			}
		}
		return text, left == 0
	})
}

// guardedLife is what goes on with what is guarded, too.
func (o *outage) guardedLife() {
	o.Helper()
	limited := o.read("{apiVersion: apps/v1, kind: Deployment, metadata: {name: limited}}")
	o.merge(limited, fmt.Sprintf(`{"metadata":{"annotations":{"touched":%q}},"spec":{"template":{"metadata":{"annotations":{"touched":%[1]q}}}}}`, time.Now()))
	o.mergeStatus(limited, `{"status":{"observedGeneration":1}}`)
	kept := o.read("{apiVersion: v1, kind: ConfigMap, metadata: {name: kept}}")
	o.merge(kept, fmt.Sprintf(`{"metadata":{"annotations":{"touched":%q}},"data":{"touched":%[1]q}}`, time.Now()))
	o.merge(kept, `{"metadata":{"finalizers":["example.com/hold"]}}`)
	o.merge(kept, `{"metadata":{"finalizers":null}}`)
	o.kubelet(o.space)
}

// deliberateRequests is how many there are in a round.
const deliberateRequests = 5

// deliberateRound is what the guards are for: all of it is refused, because nobody can tell whether it may be.
func (o *outage) deliberateRound() {
	o.Helper()
	kept := o.read("{apiVersion: v1, kind: ConfigMap, metadata: {name: kept}}")
	merge := func(text string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(text)) }
	crd := o.read("{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: vsphereservers.sallyport.dev}}")
	for what, err := range map[string]error{
		"a deletion of what is kept":     o.deliberate.Delete(o.Context(), kept),
		"its label":                      o.deliberate.Patch(o.Context(), kept, merge(`{"metadata":{"labels":null}}`)),
		"an owner of it":                 o.deliberate.Patch(o.Context(), kept, merge(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Secret","name":"a","uid":"b"}]}}`)),
		"a definition of Sallyport's":    o.deliberate.Delete(o.Context(), crd, client.DryRunAll),
		"a new object with a wrong mark": o.deliberate.Create(o.Context(), o.read("{apiVersion: v1, kind: ConfigMap, metadata: {name: b, labels: {"+v1alpha1.LabelDeletionProtection+": 'no'}}}")),
	} {
		if err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
			o.Errorf("%s, while nobody answers: %v", what, err)
		}
	}
}
