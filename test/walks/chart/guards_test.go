package chart

import (
	"fmt"
	"strings"
	"time"
)

// guarded is an ordinary Deployment that says what it can bear.
const guarded = `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: guarded
  namespace: ` + team + `
  labels: {sallyport.dev/deletion-protection: enabled}
  annotations: {sallyport.dev/min-replicas: "2"}
spec:
  replicas: 3
  selector: {matchLabels: {app: guarded}}
  template:
    metadata: {labels: {app: guarded}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: "%s", imagePullPolicy: IfNotPresent}]
`

// guards has an ordinary workload run under the guards: what hurts it is refused, and all else goes on.
func (w *walk) guards() {
	const of = " --namespace " + team
	pods := w.site.local() == nil // else nobody runs them
	w.create(fmt.Sprintf(guarded, w.idleImage()))
	rolled := func() {
		if pods {
			w.kubectl("rollout status deployment/guarded --timeout=2m" + of)
		}
	}
	w.throughout("a workload under the guards", w.usual, func() {
		rolled()
		w.kubectl("set env deployment/guarded ROLLED=out" + of)
		rolled()
		w.refused("scale deployment/guarded --replicas=1"+of, "[scaling-guard/BelowMinReplicas]", "annotation sallyport.dev/min-replicas is 2")
		w.refused("delete deployment guarded"+of, "[deletion-protected/DeletionProtected]")
		w.kubectl("scale deployment/guarded --replicas=2" + of)
		w.kubectl("scale deployment/guarded --replicas=3" + of)
		rolled()
		if pods {
			w.drains(of)
			rolled()
		}
		w.Until("the refusals are events", func() (string, bool) {
			events := w.kubectl("get events --field-selector involvedObject.name=guarded -o jsonpath={.items[*].reason}" + of)
			return events, strings.Contains(events, "BelowMinReplicas") && strings.Contains(events, "DeletionProtected")
		})
	})
	w.endsProtection()
}

// idleImage is an image that does nothing, which every node has that runs pods.
func (w *walk) idleImage() string {
	for _, name := range strings.Fields(w.kubectl("get nodes -o jsonpath={.items[*].status.images[*].names[*]}")) {
		if strings.Contains(name, "/pause:") {
			return name
		}
	}
	return "pause" // nobody runs it
}

// drains takes the workload's pods off their node and lets them come back.
func (w *walk) drains(of string) {
	node := w.kubectl("get pods --selector app=guarded -o jsonpath={.items[0].spec.nodeName}" + of)
	defer w.kubectl("uncordon " + node)
	w.Log(w.kubectl("drain " + node + " --pod-selector app=guarded --timeout=2m"))
}

// endsProtection takes the protection off for a reason, of an object and of what a namespace holds, and has both deleted.
func (w *walk) endsProtection() {
	const kept = "walk-kept"
	w.kubectl("create namespace " + kept)
	w.kubectl("create service clusterip front --tcp=80 --namespace " + kept)
	w.kubectl("label service front sallyport.dev/deletion-protection=enabled --namespace " + kept)
	w.refused("delete namespace "+kept, "[deletion-cascade/NamespaceHoldsProtected]", "services/front")
	me := strings.TrimSpace(w.kubectl("auth whoami -o jsonpath={.status.userInfo.username}"))
	for _, object := range []string{"service/front --namespace " + kept, "deployment/guarded --namespace " + team} {
		w.refused("label "+object+" sallyport.dev/deletion-protection-", "[deletion-protected/ProtectionRemoved]")
		uid := w.kubectl("get " + object + " -o jsonpath={.metadata.uid}")
		override := fmt.Sprintf("sallyport.dev/override=deletion-protected; uid=%s; by=%s; until=%s; the walk is over",
			uid, me, time.Now().Add(20*time.Minute).UTC().Format(time.RFC3339))
		if r := w.try("", append(append([]string{"annotate"}, strings.Fields(object)...), override)...); r.code != 0 {
			w.Errorf("kubectl annotate %s: %s", object, r.stderr)
		}
		w.kubectl("delete " + object + " --timeout=2m")
	}
	w.kubectl("delete namespace " + kept + " --timeout=2m")
}
