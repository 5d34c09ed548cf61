//go:build cdi

package cdi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The ways in which an importer ends without a look at the source.
const (
	evicted  = "evicted"    // the node evicts the Pod
	outOfRAM = "out of RAM" // the first container is killed
	noImage  = "no image"   // the kubelet cannot pull the image of the importer
)

// importers plays the Pods that CDI creates: it downloads what they are to download, into the folder of the volume.
type importers struct {
	client.Client
	driver *driver
	source *source
	// fate says how the importers of a namespace end.
	fate sync.Map

	seen  sync.Map // UIDs of Pods
	count atomic.Int32
}

// run plays until the context ends.
func (p *importers) run(ctx context.Context) {
	for {
		var pods corev1.PodList
		if err := p.List(ctx, &pods, client.MatchingLabels{"cdi.kubevirt.io": "importer"}); err == nil {
			for i := range pods.Items {
				if _, known := p.seen.LoadOrStore(pods.Items[i].UID, true); !known {
					go p.play(ctx, &pods.Items[i])
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// wait polls until something is so, or the Pod is gone.
func (p *importers) wait(ctx context.Context, pod *corev1.Pod, is func() bool) bool {
	for {
		if err := p.Get(ctx, client.ObjectKeyFromObject(pod), &corev1.Pod{}); client.IgnoreNotFound(err) == nil && err != nil || ctx.Err() != nil {
			return false
		}
		if is() {
			return true
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// play runs one Pod to its end.
func (p *importers) play(ctx context.Context, pod *corev1.Pod) {
	volumes := map[string]string{} // by the names in the Pod
	bound := func() bool {
		for _, v := range pod.Spec.Volumes {
			if v.PersistentVolumeClaim == nil {
				continue
			}
			claim, volume := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}
			if p.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: v.PersistentVolumeClaim.ClaimName}, claim) != nil ||
				claim.Status.Phase != corev1.ClaimBound || p.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, volume) != nil {
				return false
			}
			volumes[v.Name] = volume.Spec.CSI.VolumeHandle
		}
		return true
	}
	if !p.wait(ctx, pod, bound) {
		return
	}
	fate, _ := p.fate.Load(pod.Namespace)
	switch fate {
	case evicted:
		pod.Status.Reason = "Evicted"
		p.status(ctx, pod, corev1.PodFailed, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "Error"}}, 0, "")
		return
	case noImage:
		p.waits(ctx, pod, "ImagePullBackOff", "Back-off pulling image")
		return
	}
	told := ""
	if !p.wait(ctx, pod, func() bool {
		missing := p.missing(ctx, pod)
		if missing != told {
			p.waits(ctx, pod, "CreateContainerConfigError", missing)
			told = missing
		}
		return missing == ""
	}) {
		return
	}
	p.restart(ctx, pod, volumes, fate)
}

func (p *importers) waits(ctx context.Context, pod *corev1.Pod, reason, message string) {
	p.status(ctx, pod, corev1.PodPending, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}, 0, "")
}

// missing is what the kubelet says of a Secret that it needs for the container, empty if that is complete.
func (p *importers) missing(ctx context.Context, pod *corev1.Pod) string {
	for _, e := range pod.Spec.Containers[0].Env {
		if e.ValueFrom == nil || e.ValueFrom.SecretKeyRef == nil {
			continue
		}
		ref, secret := e.ValueFrom.SecretKeyRef, &corev1.Secret{}
		if err := p.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: ref.Name}, secret); err != nil {
			return fmt.Sprintf("secret %q not found", ref.Name)
		}
		if _, is := secret.Data[ref.Key]; !is && (ref.Optional == nil || !*ref.Optional) {
			return fmt.Sprintf("couldn't find key %s in Secret %s/%s", ref.Key, pod.Namespace, ref.Name)
		}
	}
	return ""
}

// restart runs the container as the kubelet does: again and again, until it succeeds.
func (p *importers) restart(ctx context.Context, pod *corev1.Pod, volumes map[string]string, fate any) {
	progress := &atomic.Uint64{}
	address, stop := p.metrics(pod, progress)
	defer stop()
	for restarts := int32(0); ctx.Err() == nil; restarts++ {
		p.status(ctx, pod, corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}, restarts, address)
		if fate == outOfRAM && restarts == 0 && p.count.Add(1) == 1 {
			p.status(ctx, pod, corev1.PodRunning, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}}, restarts, address)
			return
		}
		work, cancel := context.WithCancel(ctx)
		go func() {
			defer cancel()
			p.wait(work, pod, func() bool { return false }) // until the Pod is deleted
		}()
		message, err := p.load(work, pod, volumes, progress)
		over := work.Err() != nil
		cancel()
		if over {
			return
		}
		if err == nil {
			done := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", Message: message}}
			p.status(ctx, pod, corev1.PodSucceeded, done, restarts, address)
			return
		}
		text := "Unable to process data: " + err.Error()
		p.status(ctx, pod, corev1.PodRunning, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: text}}, restarts, address)
		said := func() bool { // CDI has seen it. The kubelet waits longer: ten seconds and more
			var volumes cdiv1.DataVolumeList
			return p.List(ctx, &volumes, client.InNamespace(pod.Namespace)) == nil && strings.Contains(fmt.Sprint(volumes.Items), "Unable to process data") ||
				strings.Contains(fmt.Sprint(volumes.Items), "too small")
		}
		if !p.wait(ctx, pod, said) {
			return
		}
	}
}

// status writes the status of the Pod, as the kubelet does.
func (p *importers) status(ctx context.Context, pod *corev1.Pod, phase corev1.PodPhase, state corev1.ContainerState, restarts int32, address string) {
	status := pod.Status
	status.Phase, status.PodIP = phase, address
	if address != "" {
		status.PodIPs = []corev1.PodIP{{IP: address}}
	}
	status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "importer", Image: pod.Spec.Containers[0].Image, State: state, RestartCount: restarts, Ready: state.Running != nil, Started: new(state.Running != nil),
	}}
	patch, err := json.Marshal(map[string]any{"status": status})
	if err == nil {
		_ = p.Status().Patch(ctx, pod.DeepCopy(), client.RawPatch(types.MergePatchType, patch)) // the Pod may be gone
	}
}

// metrics serves the progress of a Pod at an address of its own.
func (p *importers) metrics(pod *corev1.Pod, progress *atomic.Uint64) (address string, stop func()) {
	owner := strings.TrimPrefix(pod.Name, "importer-prime-")
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, "kubevirt_cdi_import_progress_total{ownerUID=%q} %d\n", owner, progress.Load())
	}))
	address = fmt.Sprintf("127.127.%d.%d", os.Getpid()%250+1, p.count.Add(1)+1)
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "8443"))
	if err != nil {
		return "", func() {}
	}
	_ = server.Listener.Close()
	server.Listener = listener
	server.StartTLS()
	return address, server.Close
}

// message is what an importer leaves for CDI.
func message(text string, scratch bool) string {
	out, _ := json.Marshal(map[string]any{"scratchSpaceRequired": scratch, "preallocationApplied": false, "message": text})
	return string(out)
}

// load downloads what the Pod is to download.
func (p *importers) load(ctx context.Context, pod *corev1.Pod, volumes map[string]string, progress *atomic.Uint64) (said string, err error) {
	settings := map[string]string{}
	for _, e := range pod.Spec.Containers[0].Env {
		settings[e.Name] = e.Value
		if e.ValueFrom == nil || e.ValueFrom.SecretKeyRef == nil {
			continue
		}
		secret := &corev1.Secret{}
		if err := p.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: e.ValueFrom.SecretKeyRef.Name}, secret); err != nil {
			return "", err
		}
		settings[e.Name] = string(secret.Data[e.ValueFrom.SecretKeyRef.Key])
	}
	if _, scratch := volumes["cdi-scratch-vol"]; settings["IMPORTER_SOURCE"] == "http" && !scratch {
		return message("scratch space required and none found", true), nil
	}
	disk, block := p.driver.disk(volumes["cdi-data-vol"])
	if given := slices.ContainsFunc(pod.Spec.Containers[0].VolumeDevices, func(d corev1.VolumeDevice) bool { return d.Name == "cdi-data-vol" }); given != block {
		return "", fmt.Errorf("the Pod has a block device: %t, the volume is one: %t", given, block)
	}
	if !block {
		if err := os.Remove(disk); err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
	}
	body, length, err := p.source.open(ctx, settings)
	if err != nil {
		return "", err
	}
	defer func() { _ = body.Close() }()
	if length > p.size(volumes["cdi-data-vol"]) {
		return "", fmt.Errorf("virtual image size %d is larger than the reported available storage", length)
	}
	file, err := os.OpenFile(disk, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	hash, read := sha256.New(), int64(0)
	for buffer := make([]byte, 4096); ; {
		n, err := body.Read(buffer)
		if _, err := io.MultiWriter(file, hash).Write(buffer[:n]); err != nil {
			return "", err
		}
		read += int64(n)
		progress.Store(uint64(100 * read / max(1, length)))
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", err
		}
	}
	if want := settings["IMPORTER_CHECKSUM"]; want != "" && want != "sha256:"+hex.EncodeToString(hash.Sum(nil)) {
		return message("checksum mismatch: expected "+want, false), nil
	}
	return message("Import Complete", false), nil
}

func (p *importers) size(volume string) int64 {
	p.driver.mu.Lock()
	defer p.driver.mu.Unlock()
	return p.driver.sizes[volume]
}
