package main

import (
	"context"

	"sallyport.dev/sallyport/test/support/storage"
)

// booting is a machine that boots from an image, which is imported for it.
const booting = `
apiVersion: sallyport.dev/v1alpha1
kind: VirtualMachine
metadata: {name: job-1}
spec:
  runtime: {pod: {}}
  diskImage:
    ref: {name: alpine}
    mode: CreateIfNotExist
    template:
      url: https://images.example.com/alpine.qcow2
      checksum: sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
      diskSize: 2Gi
`

// startStorage starts what plays CDI and a CSI driver.
func (s *stage) startStorage(ctx context.Context) (err error) {
	if s.storage, err = storage.New(s.plane.Config); err != nil {
		return err
	}
	if err := s.plane.InstallCRDs(ctx, storage.Definitions()...); err != nil {
		return err
	}
	if err := s.storage.Install(ctx); err != nil {
		return err
	}
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.storage.Run(running, func(error) {}) // it tries again
	}()
	s.onClose(func() error { end(); <-ended; return nil })
	return nil
}

func (s *show) images() {
	s.chapter("A machine boots from an image",
		"CDI imports images into the cluster, and machines boot from copies of a snapshot. The demo plays CDI and the storage. The machine waits\n"+
			"for the image:")
	s.attempt("starting the storage", s.startStorage)
	release := s.storage.Hold()
	defer release()
	s.create(booting)
	s.kubectl("wait svm/job-1 --for=jsonpath={.status.phase}=WaitingForImage --timeout=2m")
	s.kubectl("wait vmdi/alpine --for=jsonpath={.status.attempt.progress}=45.12% --timeout=2m")
	s.kubectl("sallyport why svm job-1", "WaitingForImage", "alpine")
	s.kubectl("sallyport why vmdi alpine", "45.12%", "svm/job-1")
	release()
	s.kubectl("wait svm/job-1 --for=condition=Ready --timeout=2m")
	s.kubectl("wait vmdi/alpine --for=condition=InUse --timeout=2m")
	s.kubectl("get vmdi alpine", "Ready")
	s.tell("The image is kept while a disk is a copy of it. If it is deleted, it is Terminating, and the machine runs on:")
	s.kubectl("delete vmdi alpine --wait=false", "deleted")
	s.kubectl("sallyport why vmdi alpine", "Terminating", "svm/job-1")
	s.tell("With the machine, its disk and then the image are deleted. With deletionPolicy DeleteAfterUnreferenced, Sallyport deletes an image by\n" +
		"itself when no disk has used it for the time of its spec.")
	s.kubectl("delete svm job-1 --timeout=2m")
	s.kubectl("wait vmdi/alpine --for=delete --timeout=2m")
}
